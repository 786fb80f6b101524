import canonicalize from 'canonicalize'
import { flipped, lines, MADE_OF_ROWS, named, type PackChange, put, text } from './pack-files.ts'

/** Digests, rows, and what is made of them: 2. */
export const CHANGED: Readonly<Record<string, PackChange>> = {
  'a file and not its digest': ({ files }, { one, below }) => {
    const name =
      one(
        [...files.keys()].filter(
          (each) => !['SHA256SUMS', 'inventory.json'].includes(each) && (files.get(each)?.length ?? 0) > 0,
        ),
      ) ?? ''
    return new Map(files).set(name, flipped(files.get(name), { below, one }))
  },
  'a file more': ({ files }) => new Map(files).set('more.txt', Buffer.from('x')),
  'a file less': ({ files }, { one }) => {
    const made = new Map(files)
    made.delete(
      one(
        [...files.keys()].filter((name) => !['SHA256SUMS', 'inventory.json', 'rows.ndjson'].includes(name)),
      ) ?? '',
    )
    return made
  },
  'no digests': ({ files }) => new Map([...files].filter(([name]) => name !== 'SHA256SUMS')),
  'digests with carriage returns': ({ files }) =>
    new Map(files).set('SHA256SUMS', Buffer.from(text(files, 'SHA256SUMS').replaceAll('\n', '\r\n'))),
  'digests with another blank': ({ files }) =>
    new Map(files).set('SHA256SUMS', Buffer.from(text(files, 'SHA256SUMS').replace('  ', ' *'))),
  'digests in capitals': ({ files }) =>
    new Map(files).set(
      'SHA256SUMS',
      Buffer.from(
        text(files, 'SHA256SUMS')
          .toUpperCase()
          .replace(/ {2}.*/g, (name) => name),
      ),
    ),
  'digests of itself': ({ files }) =>
    new Map(files).set(
      'SHA256SUMS',
      Buffer.from(`${text(files, 'SHA256SUMS')}${'0'.repeat(64)}  SHA256SUMS\n`),
    ),
  'one digest twice, the first a false one': ({ files }) =>
    new Map(files).set(
      'SHA256SUMS',
      Buffer.from(`${'0'.repeat(64)}  rows.csv\n${text(files, 'SHA256SUMS')}`),
    ),
  'one digest twice, the last a false one': ({ files }) =>
    new Map(files).set(
      'SHA256SUMS',
      Buffer.from(`${text(files, 'SHA256SUMS')}${'0'.repeat(64)}  rows.csv\n`),
    ),
  'lines of digests that other programs would split': ({ files }) => {
    const made = new Map(files)
    const [digest = ''] = text(files, 'SHA256SUMS').split(' ')
    return made.set(
      'SHA256SUMS',
      Buffer.from(`${text(files, 'SHA256SUMS').trimEnd()}\u2028${digest}  README.md\n`),
    )
  },
  'a row changed': (made, { one }) => {
    const all = lines(made, 'rows.ndjson')
    const line = one(all.filter((each) => each !== '')) ?? ''
    return put(
      made,
      'rows.ndjson',
      all.map((each) => (each === line ? each.replace('"version":"0', '"version":"1') : each)).join(''),
    )
  },
  'a row gone, and its stream goes on': (made, { one }) => {
    const all = lines(made, 'rows.ndjson').filter((line) => line !== '')
    const streams = all.map((line) => JSON.parse(line).stream)
    const at = one(
      all.flatMap((_, index) =>
        streams.slice(index + 1).includes(streams[index]) && streams.slice(0, index).includes(streams[index])
          ? [index]
          : [],
      ),
    )
    return at === undefined ? null : put(made, 'rows.ndjson', all.toSpliced(at, 1).join(''))
  },
  'a row twice': (made) =>
    put(
      made,
      'rows.ndjson',
      text(made.files, 'rows.ndjson') + (lines(made, 'rows.ndjson').find((line) => line !== '') ?? ''),
    ),
  'a table of one row less': (made, { one }) => {
    const name = one(
      MADE_OF_ROWS.filter(
        (each) => lines(made, each).filter((line) => line !== '').length > 1 && !each.endsWith('.json'),
      ),
    )
    if (name === undefined) return null
    const all = lines(made, name).filter((line) => line !== '')
    return put(made, name, all.toSpliced(all.length - 1, 1).join(''))
  },
  'a table of one letter more': (made, { one }) => {
    const name = one(MADE_OF_ROWS) ?? ''
    return put(made, name, `${text(made.files, name)}x`)
  },
  'a table with other line ends': (made) =>
    put(made, 'rows.csv', text(made.files, 'rows.csv').replaceAll('\r\n', '\n')),
  'no table': (made, { one }) => put(made, one(MADE_OF_ROWS) ?? '', null),
  'a set that nobody was given': (made) =>
    put(
      made,
      'sets-end.json',
      text(made.files, 'sets-end.json')
        .replace('"llm.chat"', '"llm.more"')
        .replace('"principals": []', '"principals": [1]'),
    ),
  'sets in front of the first row': (made, { one }) => {
    if (made.first > 0) return null
    return put(
      made,
      'sets-start.json',
      JSON.stringify({
        principals: one([
          [{ principal: 'x', revision: 1, is_active: true, capabilities: [], row: 'main:1' }],
          [{ principal: 5 }],
          [null],
          [[]],
          [{}],
          null,
          5,
          'x',
        ]),
      }),
    )
  },
  'a bit of a state': (made, choose) => {
    const name = choose.one(named(made, /^state-/))
    return name === undefined ? null : put(made, name, flipped(made.files.get(name), choose))
  },
  'a state of other rows': (made, { one }) => {
    const name = one(named(made, /^state-/))
    if (name === undefined) return null
    const { leaf, ...state } = JSON.parse(text(made.files, name))
    return put(made, name, canonicalize({ ...state, leaf: leaf - 1 }) ?? '')
  },
  'a state that is written otherwise': (made, { one }) => {
    const name = one(named(made, /^state-/))
    return name === undefined ? null : put(made, name, `${text(made.files, name)}\n`)
  },
  'the state at the end for that at the start': (made) =>
    made.files.has('state-start.json')
      ? put(made, 'state-start.json', made.files.get('state-end.json') ?? '')
      : null,
  'a state that is none': (made, { one }) => {
    const name = one(named(made, /^state-/))
    const none = one(['', '{', '[]', 'null', '5', '{"v":1}', '{"v":2}', '['.repeat(50_000), Buffer.of(0xff)])
    return name === undefined ? null : put(made, name, none ?? '')
  },
  'no state at the start': (made) =>
    made.files.has('state-start.json') ? put(made, 'state-start.json', null) : null,
  'sets that are none': (made, { one }) =>
    put(
      made,
      'sets-start.json',
      one([
        '',
        '{',
        '[]',
        'null',
        '5',
        '{"principals":null}',
        '{"principals":{}}',
        '{"principals":[5]}',
        '{"principals":[{"principal":5}]}',
        '{"principals":[{"principal":["x"]}]}',
        '['.repeat(50_000),
        '{"a":1e999,"principals":"x"}',
      ]) ?? '',
    ),
}
