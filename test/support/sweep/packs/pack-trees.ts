import { signed } from '../life/log.ts'
import { summed } from './pack.ts'
import { flipped, inventory, lines, named, type PackChange, put, text } from './pack-files.ts'

/** Tiles, checkpoints and keys: 3. */
export const TREE: Readonly<Record<string, PackChange>> = {
  'a tile changed': (made, choose) => {
    const name = choose.one(named(made, /^tiles\/0\//)) ?? ''
    const tile = made.files.get(name)
    const width = (tile?.length ?? 0) / 32
    const n = Number(name.replace(/^tiles\/0\//, '').replace(/\.p.*/, ''))
    // A hash of no row, that is under no checkpoint of the pack, is nothing: so one of a row.
    const rows = JSON.parse(text(made.files, 'inventory.json')).rows
    const [from, to] = [Math.max(made.first, n * 256), Math.min(made.first + rows, n * 256 + width)]
    if (to <= from) return null
    const bytes = Buffer.from(tile ?? '')
    const at = (from - n * 256 + choose.below(to - from)) * 32 + choose.below(32)
    bytes.writeUInt8(bytes.readUInt8(at) ^ (1 << choose.below(8)), at)
    return put(made, name, bytes)
  },
  'a tile gone': (made) => put(made, named(made, /^tiles\/0\//).at(-1) ?? '', null),
  'all tiles gone': (made) => {
    const files = new Map([...made.files].filter(([name]) => !name.startsWith('tiles/')))
    return summed(files)
  },
  'a tile of another width than it says': (made) => {
    const name = named(made, /^tiles\/0\/.*\.p\//).at(-1) ?? ''
    return name === ''
      ? null
      : put(made, name, Buffer.concat([made.files.get(name) ?? Buffer.alloc(0), Buffer.alloc(32)]))
  },
  'a tile cut inside a hash': (made) => {
    const name = named(made, /^tiles\/0\/.*\.p\//).at(-1) ?? ''
    return name === '' ? null : put(made, name, (made.files.get(name) ?? Buffer.alloc(0)).subarray(0, -1))
  },
  'an upper tile changed': (made, choose) => {
    const name = choose.one(named(made, /^tiles\/1\//))
    return name === undefined ? null : put(made, name, flipped(made.files.get(name), choose))
  },
  'another root': (made) => {
    const name = named(made, /^checkpoints\//).at(-1) ?? ''
    return put(made, name, text(made.files, name).replace(/^.{43}=$/m, `${'A'.repeat(43)}=`))
  },
  'no checkpoint': (made) =>
    summed(new Map([...made.files].filter(([name]) => !name.startsWith('checkpoints/')))),
  'a checkpoint that is none': (made, { one }) =>
    put(
      made,
      named(made, /^checkpoints\//).at(-1) ?? '',
      one([
        '',
        'x',
        '\n\n',
        '\u0000',
        Buffer.of(0xff, 0xfe),
        `a\n${'9'.repeat(400)}\nAAAA\n\n— a AAAAAAAA\n`,
      ]) ?? '',
    ),
  'a checkpoint of no byte of UTF-8': (made) => {
    const name = named(made, /^checkpoints\//).at(-1) ?? ''
    return put(
      made,
      name,
      Buffer.concat([
        made.files.get(name) ?? Buffer.alloc(0),
        Buffer.from('— '),
        Buffer.of(0xff),
        Buffer.from(' AAAAAAAA\n'),
      ]),
    )
  },
  'signed by a thief': (made) => {
    const last = made.log.kept.at(-1)
    return put(made, `checkpoints/${last?.size}.txt`, signed(made.log.leaves, [made.ring.thief], null))
  },
  'signed by a thief, who brings his key': (made) => {
    const last = made.log.kept.at(-1)
    const files = put(made, `checkpoints/${last?.size}.txt`, signed(made.log.leaves, [made.ring.thief], null))
    return put({ ...made, files }, 'key.txt', `${text(files, 'key.txt')}${made.ring.thief.vkey}\n`)
  },
  'no keys': (made) => put(made, 'key.txt', null),
  'a key that is none': (made, { one }) =>
    put(
      made,
      'key.txt',
      one(['x\n', 'a+00000000+AAAA\n', '\u0000', Buffer.of(0xff), `${text(made.files, 'key.txt')}x`]) ?? '',
    ),
  'more rows in it than it says': (made) => {
    const { rows } = JSON.parse(text(made.files, 'inventory.json'))
    return rows < 2 ? null : inventory(made, { rows: rows - 1 })
  },
  'another place in the log': (made, { below }) =>
    inventory(made, { first_index: made.first + 1 + below(5) }),
  'another log': (made) => inventory(made, { origin: 'example.org/other/audit' }),
  'a place far beyond': (made, { one }) =>
    inventory(made, { first_index: one([2 ** 52, 2 ** 40, 1_000_000]) }),
}

/** Fewer rows than there were: 4. */
export const SHORT: Readonly<Record<string, PackChange>> = {
  'the end cut off': (made) => {
    const all = lines(made, 'rows.ndjson').filter((line) => line !== '')
    return all.length < 2 ? null : put(made, 'rows.ndjson', all.slice(0, -1).join(''))
  },
  'more rows said than there are': (made, { below }) =>
    inventory(made, { rows: JSON.parse(text(made.files, 'inventory.json')).rows + 1 + below(5) }),
}

/** What is no pack: 9. */
export const NO_PACK: Readonly<Record<string, PackChange>> = {
  'no inventory': (made) => put(made, 'inventory.json', null),
  'an inventory that is none': (made, { one }) =>
    put(
      made,
      'inventory.json',
      one([
        '',
        '{',
        '[]',
        'null',
        '5',
        '"x"',
        '\ufeff{}',
        '['.repeat(50_000),
        '{"a":'.repeat(50_000),
        Buffer.of(0xff),
        '{"format":"sallyport-evidence/1"}',
      ]) ?? '',
    ),
  'an inventory of another form': (made, { one }) =>
    inventory(made, {
      [one(['first_index', 'rows', 'origin', 'format']) ?? '']: one([null, -1, 1.5, true, [], {}, undefined]),
    }),
  'numbers that are too large': (made, { one }) =>
    inventory(made, { [one(['first_index', 'rows']) ?? '']: 2 ** 60 }),
  'no rows said': (made) => inventory(made, { rows: 0 }),
  'no rows': (made) => put(made, 'rows.ndjson', null),
  'rows of nothing': (made, { one }) => put(made, 'rows.ndjson', one(['', '\n', 'x', '{}', '[]']) ?? ''),
}

/** What may be otherwise in an honest one. */
export const HONEST_PACKS: Readonly<Record<string, PackChange>> = {
  'as it was made': ({ files }) => files,
  'without states': (made) => {
    const states = named(made, /^state-/)
    return states.reduce((files, name) => put({ ...made, files }, name, null), made.files)
  },
  'with a file that is listed': (made) => put(made, 'notes/of-ours.txt', 'x'),
  'with an inventory that says more': (made) =>
    inventory(made, { more: [1.5, 1e300], first_index: made.first }),
  'with a number that is spelt otherwise': (made) =>
    put(made, 'inventory.json', text(made.files, 'inventory.json').replace(/"rows": ?(\d+)/, '"rows": $1.0')),
}
