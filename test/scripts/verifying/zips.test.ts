import { spawnSync } from 'node:child_process'
import { randomBytes } from 'node:crypto'
import { writeFileSync } from 'node:fs'
import { join } from 'node:path'
import t from 'tap'
import { ring, sealedLog } from '../../support/sweep/life/log.ts'
import { plansOf } from '../../support/sweep/life/steps.ts'
import { packOf, summed } from '../../support/sweep/packs/pack.ts'
import { type End, type ZipEntry as Zipped, zipOf } from '../../support/sweep/packs/zip.ts'
import { allVerifiers, PYTHON, withoutPython } from '../../support/verifiers.ts'

const verify = allVerifiers(t)
const SALLYPORT = join(import.meta.dirname, '../../../scripts/sallyport.ts')
const VERIFIERS = [
  [process.execPath, SALLYPORT, 'verify'],
  ['python3', PYTHON],
]
/** Runs a program and says the most memory that it took, in KiB. */
const MEASURE = `
import resource, subprocess, sys
ran = subprocess.run(sys.argv[1:], capture_output=True)
print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss, file=sys.stderr)
sys.exit(ran.returncode)
`
const directory = t.testdir()
const file = (bytes: Buffer): string => {
  const path = join(directory, 'pack.zip')
  writeFileSync(path, bytes)
  return path
}

await t.test('a zip that can be read in two ways is not read, by any verifier', async (t) => {
  const keys = ring()
  const [plan] = plansOf(7, 1, [30, 40])
  if (!plan) throw new Error('there is no history')
  const log = sealedLog(plan, keys)
  const entries: readonly Zipped[] = [...packOf(log, 0, log.lines.length)].map(([name, data]) => ({
    name,
    data,
  }))
  const first = entries[0] ?? { name: '', data: Buffer.alloc(0) }
  const readme = (change: object): readonly Zipped[] => [{ ...first, ...change }, ...entries.slice(1)]
  const cases: readonly (readonly [string, readonly Zipped[], End, number])[] = [
    ['as it was', entries, {}, 0],
    ['a file twice', [...entries, first], {}, 9],
    ['a name that leads out', [...entries, { name: '../x', data: first.data }], {}, 9],
    ['another name in front of the bytes', readme({ localName: 'README.txt' }), {}, 9],
    ['an encrypted file', readme({ flags: 1 }), {}, 9],
    ['a method that only some know', readme({ method: 12 }), {}, 9],
    ['another checksum', readme({ crc: 1 }), {}, 9],
    ['bytes that cannot be inflated', readme({ stored: Buffer.alloc(50, 0xff) }), {}, 9],
    ['a size that is too small', readme({ size: 3 }), {}, 9],
    ['a size that is too large', readme({ size: 3_000 }), {}, 9],
    ['two files in one place', [...entries, { ...first, name: 'more.md', isGhost: true, offset: 0 }], {}, 9],
    ['more files than there are', entries, { count: entries.length + 1 }, 9],
    ['fewer files than there are', entries, { count: entries.length - 1 }, 9],
    ['something in front', entries, { before: Buffer.from('#!/bin/sh\n') }, 9],
    ['something behind', entries, { behind: Buffer.from('x') }, 9],
    ['a comment', entries, { comment: Buffer.from('x') }, 9],
  ]
  for (const [name, zipped, end, code] of cases) {
    const said = await verify(file(zipOf(zipped, end)), '--key', log.keys[0]?.vkey ?? '')
    t.equal(said.code, code, `${name}: ${said.err}`)
  }
})

/** Runs each verifier on a file. Returns the most memory that one of them took, in MiB, and their exit codes. */
function measured(path: string): { readonly mib: number; readonly codes: readonly (number | null)[] } {
  const found = VERIFIERS.map((command) => {
    const { status, stderr } = spawnSync('python3', ['-c', MEASURE, ...command, path], {
      encoding: 'utf8',
      timeout: 60_000,
    })
    return { status, mib: Number(stderr.trim().split('\n').at(-1)) / 1024 }
  })
  return { mib: Math.max(...found.map(({ mib }) => mib)), codes: found.map(({ status }) => status) }
}

await t.test(
  'H13: a small pack does not make a verifier large, whatever is in it',
  { skip: withoutPython },
  async (t) => {
    const [plan] = plansOf(7, 1, [30, 40])
    if (!plan) throw new Error('there is no history')
    const log = sealedLog(plan, ring())
    const honest = packOf(log, 0, log.lines.length)
    const mib = 1 << 20
    const inventory = honest.get('inventory.json')?.toString().trimEnd().slice(0, -1) ?? ''
    const note = honest.get([...honest.keys()].find((name) => name.startsWith('checkpoints/')) ?? '')
    const filled = (start: string, piece: string, end: string, length: number): Buffer =>
      Buffer.from(start + piece.repeat(length / piece.length) + end)
    const bombs: Readonly<Record<string, readonly (readonly [string, Buffer])[]>> = {
      'a list of digests without end': [['SHA256SUMS', Buffer.alloc(60 * mib, 'a\n')]],
      'an inventory of empty lists': [
        ['inventory.json', filled(`${inventory},"x":[`, '[],', '0]}', 60 * mib)],
      ],
      'sets of empty objects': [['sets-start.json', filled('{"principals":[', '{},', '0]}', 60 * mib)]],
      'a set of lists in lists': [
        [
          'sets-start.json',
          filled(
            '{"principals":[{"principal":"x","x":[',
            `${'['.repeat(900)}${']'.repeat(900)},`,
            '0]}]}',
            10 * mib,
          ),
        ],
      ],
      'checkpoints, each within its bound': Array.from({ length: 60 }, (_, n) => [
        `checkpoints/${n + 1}.txt`,
        Buffer.concat([note ?? Buffer.alloc(0), Buffer.alloc(mib - 4096, 'x\n')]),
      ]),
      'time stamps, each within its bound': Array.from({ length: 60 }, (_, n) => [
        `anchors/${log.lines.length}-${n}.tsr`,
        Buffer.alloc(mib),
      ]),
    }
    // Which no method makes shorter: a pack that may have more.
    const ballast: readonly [string, Buffer] = ['README.md', randomBytes(mib)]
    const cases = [
      ...Object.entries(bombs).map(([name, files]) => [name, files, 128 * 1024] as const),
      ...['a list of digests without end', 'sets of empty objects'].map(
        (name) => [`${name}, in a larger pack`, [...(bombs[name] ?? []), ballast], 2 * mib] as const,
      ),
    ]
    for (const [name, files, length] of cases) {
      const all = new Map([...honest, ...files])
      const entries = [...(files[0]?.[0] === 'SHA256SUMS' ? all : summed(all))].map(([file, data]) => ({
        name: file,
        data,
      }))
      const zip = zipOf(entries)
      const { mib: most, codes } = measured(file(zip))
      t.ok(zip.length < length, `${name}: ${zip.length} bytes`)
      t.ok(most < 500, `${name}: ${Math.round(most)} MiB`)
      t.equal(new Set(codes).size, 1, `${name}: all say the same: ${codes.join(', ')}`)
      t.not(codes[0], 0, name)
    }
  },
)
