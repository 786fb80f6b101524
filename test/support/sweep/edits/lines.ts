import type { SealedLog } from '../life/log.ts'
import { aloneAndHeld, type Chooser, type Code, type Edit } from './edit.ts'

// Edits of the text of an export: no hash is made anew. Each is found without anything from elsewhere.

type Change = (line: string, choose: Chooser) => string | Buffer | null

/** Columns whose value is a text or null, and what is put in their place. */
const TEXTS = [
  ...[
    'action',
    'config_digest',
    'prev_hash',
    'recorded_at',
    'row_hash',
    'status',
    'stream',
    'version',
    'dpop_jkt',
  ],
  ...['model', 'principal_id', 'principal_type', 'provider', 'request_id', 'tool', 'cert_thumbprint'],
]

const replaced = (line: string, from: string | RegExp, to: string): string | null => {
  const made = line.replace(from, () => to)
  return made === line ? null : made
}
const beforeEnd = (line: string, text: string): string => `${line.slice(0, -1)}${text}}`

/** Changes of one line that is still JSON with the columns of a row. */
const OF_A_ROW: Readonly<Record<string, Change>> = {
  ...Object.fromEntries(
    TEXTS.flatMap((name): readonly (readonly [string, Change])[] => [
      [
        `${name} is another text`,
        (line) => replaced(line, new RegExp(`"${name}":(null|"(?:[^"\\\\]|\\\\.)*")`), `"${name}":"x"`),
      ],
      [
        `${name} is a number`,
        (line) => replaced(line, new RegExp(`"${name}":(null|"(?:[^"\\\\]|\\\\.)*")`), `"${name}":7`),
      ],
      [
        `${name} is empty`,
        (line) => replaced(line, new RegExp(`"${name}":(null|"(?:[^"\\\\]|\\\\.)+")`), `"${name}":""`),
      ],
      [
        `${name} is a list`,
        (line) => replaced(line, new RegExp(`"${name}":(null|"(?:[^"\\\\]|\\\\.)*")`), `"${name}":["x"]`),
      ],
    ]),
  ),
  'one digit is another': (line, { below }) => {
    const digits = [...line.matchAll(/[0-9a-f]{64}/g)]
    const { index = 0 } = digits[below(digits.length)] ?? {}
    const at = index + below(64)
    return `${line.slice(0, at)}${line[at] === '0' ? '1' : '0'}${line.slice(at + 1)}`
  },
  'seq is another': (line, { below }) => replaced(line, /"seq":\d+/, `"seq":${100_000 + below(9)}`),
  'seq is 0': (line) => replaced(line, /"seq":\d+/, '"seq":0'),
  'seq is below 0': (line) => replaced(line, /"seq":\d+/, '"seq":-1'),
  'seq is a fraction': (line) => replaced(line, /"seq":(\d+)/, '"seq":1.5'),
  'seq is spelt 1.0': (line) => line.replace(/"seq":(\d+)/, '"seq":$1.0'),
  'seq is spelt with an exponent': (line) => line.replace(/"seq":(\d+)/, '"seq":$1e0'),
  'seq is a text': (line) => line.replace(/"seq":(\d+)/, '"seq":"$1"'),
  'seq is beyond 2^53': (line) => replaced(line, /"seq":\d+/, '"seq":9007199254740993'),
  'seq has a thousand digits': (line) => replaced(line, /"seq":\d+/, `"seq":${'9'.repeat(1_000)}`),
  'seq has ten thousand digits': (line) => replaced(line, /"seq":\d+/, `"seq":${'9'.repeat(10_000)}`),
  'seq is -0': (line) => replaced(line, /"seq":\d+/, '"seq":-0'),
  'seq is true': (line) => replaced(line, /"seq":\d+/, '"seq":true'),
  'seq is null': (line) => replaced(line, /"seq":\d+/, '"seq":null'),
  'v is 3': (line) => replaced(line, /"v":\d/, '"v":3'),
  'v is 0': (line) => replaced(line, /"v":\d/, '"v":0'),
  'v is true': (line) => replaced(line, /"v":\d/, '"v":true'),
  'v is a text': (line) => line.replace(/"v":(\d)/, '"v":"$1"'),
  'v is the other version': (line) => line.replace(/"v":(\d)/, (_, v) => `"v":${3 - Number(v)}`),
  'detail is empty': (line) => replaced(line, /"detail":\{.*\},"dpop_jkt"/, '"detail":{},"dpop_jkt"'),
  'detail is null': (line) => replaced(line, /"detail":\{.*\},"dpop_jkt"/, '"detail":null,"dpop_jkt"'),
  'detail is a list': (line) => replaced(line, /"detail":\{.*\},"dpop_jkt"/, '"detail":[],"dpop_jkt"'),
  'detail is a text': (line) => replaced(line, /"detail":\{.*\},"dpop_jkt"/, '"detail":"{}","dpop_jkt"'),
  'detail has a blank': (line) => line.replace('"detail":{', '"detail":{ '),
  'detail has one member more': (line) =>
    line.replace(/\},"dpop_jkt"/, ',"zz":1},"dpop_jkt"').replace('{,', '{'),
  'detail is a thousand deep': (line) =>
    replaced(
      line,
      /"detail":\{.*\},"dpop_jkt"/,
      `"detail":{"a":${'['.repeat(1_000)}${']'.repeat(1_000)}},"dpop_jkt"`,
    ),
  'detail is fifty thousand deep': (line) =>
    replaced(
      line,
      /"detail":\{.*\},"dpop_jkt"/,
      `"detail":{"a":${'['.repeat(50_000)}${']'.repeat(50_000)}},"dpop_jkt"`,
    ),
  'one member more, at the end': (line) => beforeEnd(line, ',"zzz":1'),
  'one member more, in its place': (line) => line.replace(',"model":', ',"leaf":"x","model":'),
  'a member twice': (line) => line.replace(',"model":', ',"dpop_jkt":null,"model":'),
  'a member twice, and the first is the true one': (line) =>
    line.replace(/,"status":("\w+")/, ',"status":"denied","status":$1'),
  'a member called __proto__': (line) => line.replace('{', '{"__proto__":{"seq":1},'),
  'a result where none belongs, or none where one does': (line) =>
    line.includes('"result":')
      ? replaced(line, /"result":"\w+",/, '')
      : line.replace(',"row_hash":', ',"result":"allowed","row_hash":'),
  'a result that is another': (line) => replaced(line, /"result":"\w+"/, '"result":"x"'),
  'a name that is a number': (line) =>
    line.replace(/,"principal_type":/, ',"principal_name":5,"principal_type":'),
  'an escape where none is needed': (line) =>
    line.replace('"main"', '"m\\u0061in"').replace('"action"', '"\\u0061ction"'),
  'an escaped slash': (line) => replaced(line, '/v1/', '\\/v1/'),
  'half a surrogate pair': (line) => replaced(line, /"version":"[^"]*"/, '"version":"\\ud800"'),
  'a surrogate pair that is escaped': (line) =>
    replaced(line, /"version":"[^"]*"/, '"version":"\\ud834\\udd1e"'),
  'a NUL that is escaped': (line) => replaced(line, /"version":"[^"]*"/, '"version":"\\u0000"'),
  'a blank behind the line': (line) => `${line} `,
  'a tab in front of the line': (line) => `\t${line}`,
  'a carriage return': (line) => `${line}\r`,
  'members in another order': (line) =>
    `{${line
      .slice(1, -1)
      .split(/,(?="version")/)
      .toReversed()
      .join(',')}}`,
}

/** Changes that leave no JSON object with the columns of a row: of the first line they leave no export. */
const OF_THE_LINE: Readonly<Record<string, Change>> = {
  'half of the line': (line, { below }) => line.slice(0, 1 + below(line.length - 2)),
  'nothing left of the line': () => '',
  'another value than an object': () => '[1]',
  'a number, a text, null': (_, { one }) =>
    one(['1', '"x"', 'null', 'true', '1e999', 'NaN', '{}', '{"seq":1}']) ?? null,
  'a byte order mark': (line) => `\ufeff${line}`,
  'UTF-16': (line) => Buffer.from(line, 'utf16le'),
  'a byte that is no UTF-8': (line) =>
    Buffer.concat([Buffer.from(line.slice(0, 40)), Buffer.of(0xff), Buffer.from(line.slice(40))]),
  'a surrogate in UTF-8': (line) =>
    Buffer.concat([Buffer.from(line.slice(0, 11)), Buffer.of(0xed, 0xa0, 0x80), Buffer.from(line.slice(11))]),
  'NUL bytes': (line) => `${line.slice(0, 5)}\0\0${line.slice(5)}`,
  'a line feed in the line': (line) => `${line.slice(0, 60)}\n${line.slice(60)}`,
  'a column less': (line) => replaced(line, /"version":"[^"]*"/, '"w":"x"'),
  'a megabyte of blanks in front': (line) => `${' '.repeat((1 << 20) + 5)}[${line}`,
  'two rows on one line': (line) => `${line}${line}`,
  'a hundred thousand brackets': () => '['.repeat(100_000),
}

const joined = (lines: readonly (string | Buffer)[]): Buffer =>
  Buffer.concat(lines.flatMap((line) => [Buffer.from(line), Buffer.from('\n')]))

function ofOneLine(name: string, change: Change, first: Code): Edit {
  return {
    name: `a line: ${name}`,
    make: (log, choose) => {
      const at = choose.below(6) === 0 ? 0 : choose.below(log.lines.length)
      const line = log.lines[at] ?? ''
      const made = change(line, choose)
      if (made === null || made === line) return null
      const code = at === 0 ? first : 2
      return aloneAndHeld(
        log,
        joined([...log.lines.slice(0, at), made, ...log.lines.slice(at + 1)]),
        code,
        code,
      )
    },
  }
}

const of = (
  name: string,
  change: (lines: readonly string[], choose: Chooser, log: SealedLog) => readonly (string | Buffer)[] | null,
  code: Code = 2,
): Edit => ({
  name: `lines: ${name}`,
  make: (log, choose) => {
    const made = change(log.lines, choose, log)
    return made && aloneAndHeld(log, joined(made), code, code)
  },
})

/** An index of a line behind which its stream goes on. */
function followed({ rows }: SealedLog, { one }: Chooser): number | null {
  const indexes = rows.flatMap(({ stream }, index) =>
    rows.slice(index + 1).some((row) => row.stream === stream) ? [index] : [],
  )
  return one(indexes) ?? null
}

/** Changes of the order and the number of lines. */
const OF_MANY: readonly Edit[] = [
  of('one is gone, and its stream goes on', (lines, choose, log) => {
    const at = followed(log, choose)
    return at === null ? null : lines.toSpliced(at, 1)
  }),
  of('one is there twice', (lines, { below }) => {
    const at = below(lines.length)
    return lines.toSpliced(at, 0, lines[at] ?? '')
  }),
  of('one comes again at the end', (lines, { one }) => [...lines, one(lines) ?? '']),
  of('two of a stream are swapped', (lines, choose, { rows }) => {
    const at = followed({ rows } as SealedLog, choose)
    if (at === null) return null
    const next = rows.findIndex(({ stream }, index) => index > at && stream === rows[at]?.stream)
    return lines.with(at, lines[next] ?? '').with(next, lines[at] ?? '')
  }),
  of('all backwards', (lines) => lines.toReversed()),
  of('the first is gone', (lines, _, { rows }) =>
    rows.slice(1).some(({ stream }) => stream === rows[0]?.stream) ? lines.slice(1) : null,
  ),
  of('an empty line at the end', (lines) => [...lines, '']),
  of('something else at the end', (lines, { one }) => [
    ...lines,
    one(['x', '{}', 'null', '\u0000', '{"seq":']) ?? 'x',
  ]),
  of('a zip behind the last line', (lines) => [
    ...lines,
    Buffer.from('504b0506000000000000000000000000000000000000', 'hex'),
  ]),
]

/** Files that are no export. */
const NO_EXPORT: readonly Edit[] = [
  ...[
    '',
    '\n',
    ' ',
    '{}',
    '[]',
    'null',
    'PK',
    'PK\u0003\u0004',
    'SQLite format 3',
    '\ufeff',
    '{"rows":[]}',
    '{"rows":5}',
    '['.repeat(99_999),
  ],
].map(
  (file): Edit => ({
    name: `no export: ${JSON.stringify(file.slice(0, 16))}`,
    make: (log) => aloneAndHeld(log, file, 9, 9),
  }),
)

export const LINE_EDITS: readonly Edit[] = [
  ...Object.entries(OF_A_ROW).map(([name, change]) => ofOneLine(name, change, 2)),
  ...Object.entries(OF_THE_LINE).map(([name, change]) => ofOneLine(name, change, 9)),
  ...OF_MANY,
  ...NO_EXPORT,
]
