import { isDeepStrictEqual } from 'node:util'
import { JudgedNames } from '../../../plugins/json-body/json-body.ts'
import { type JudgedNamesOfText, scanJson, scanJsonSteps } from '../../../plugins/json-body/scan.ts'
import { Refusal } from '../../../plugins/refusal.ts'
import { formerScan } from './former-scan.ts'

/** Returns whole numbers from 0 to below a limit. */
export type Dice = (below: number) => number

/** Makes the same numbers for the same seed (mulberry32). */
export function diceOf(seed: number): Dice {
  let state = seed | 0
  return (below) => {
    state = (state + 0x6d2b79f5) | 0
    let mixed = Math.imul(state ^ (state >>> 15), state | 1)
    mixed ^= mixed + Math.imul(mixed ^ (mixed >>> 7), mixed | 61)
    return ((mixed ^ (mixed >>> 14)) >>> 0) % below
  }
}

const WAYS: readonly JudgedNamesOfText[] = [2, 1, 0, new JudgedNames(['model', 'stream'])]

/** Reads the bytes by both scans; the differences, or null. `bytes` may begin anywhere in its memory. */
export function scanDifference(bytes: Buffer, way: number, inSteps: boolean): string | null {
  const judged = WAYS[way % WAYS.length] ?? 2
  const [now, former] = [
    verdictOf(() => scan(bytes, judged, inSteps)),
    verdictOf(() => formerScan(bytes, judged)),
  ]
  if (typeof now === 'string' || typeof former === 'string')
    return now === former ? null : `${said(former)} is now ${said(now)}`
  // Reading the value finds what is wide.
  if (!isDeepStrictEqual(now.value, former.value)) return 'another value'
  if (JSON.stringify(now.value) !== JSON.stringify(former.value)) return 'another order'
  if (!isDeepStrictEqual(placesOf(now.spans), placesOf(former.spans))) return 'other places'
  if (now.escapedNames !== former.escapedNames) return 'escaped names'
  if (!isDeepStrictEqual(now.repeated, former.repeated)) return 'other repeated names'
  if (now.wide.size !== former.wide.size && former.repeated.size === 0) return 'other wide objects'
  return typeof judged === 'number' ? null : innerDifference(now.inner, former.value)
}

const placesOf = (spans: ReturnType<typeof formerScan>['spans']) =>
  [...spans].map(([name, { start, end }]) => [name, start, end])

const said = (verdict: unknown): string => (typeof verdict === 'string' ? verdict : 'accepted')

function scan(bytes: Buffer, judged: JudgedNamesOfText, inSteps: boolean): ReturnType<typeof scanJson> {
  if (!inSteps) return scanJson(bytes, judged)
  const steps = scanJsonSteps(bytes, judged)
  for (let step = steps.next(); ; step = steps.next()) if (step.done) return step.value
}

function verdictOf<Verdict>(read: () => Verdict): Verdict | string {
  try {
    return read()
  } catch (error) {
    if (!(error instanceof Refusal)) throw error
    return `${error.reason} ${error.message} ${JSON.stringify(error.detail)}`
  }
}

function innerDifference(inner: ReadonlyMap<string, readonly string[]>, value: unknown): string | null {
  if (typeof value !== 'object' || value === null || Array.isArray(value))
    return inner.size === 0 ? null : 'inner names'
  for (const [name, member] of Object.entries(value)) {
    const isObject = typeof member === 'object' && member !== null && !Array.isArray(member)
    const names = inner.get(name)
    if (isObject !== (names !== undefined)) return `no inner names of ${name}`
    if (names && new Set(names).size !== Object.keys(member as object).length && names.length <= 1_000)
      return `other inner names of ${name}`
  }
  return null
}

/** Bodies of every kind, near the bounds of what is looked at together. */
const CORPUS: readonly Buffer[] = [
  '{"model":"gpt-4o","messages":[{"role":"user","content":"Say \\"hi\\"\\n\\tplease"}],"stream":true,"n":1}',
  '{"model":"m","metadata":{"tags":["a"],"user":"ü","10":1,"2":{"x":null}},"temperature":-0.25e+3}',
  '{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"x","arguments":{"a":[1,2,{"b":"\\u00e9"}]}}}',
  '{"tools":[{"type":"function","function":{"name":"f","parameters":{"na\\u00efve":1,"__proto__":{}}}}],"model":"x"}',
  `{"model":"m","prompt":"${'word '.repeat(30)}","stop":null,"stream":false,"logit_bias":{"50256":-100}}`,
  `{"a":"${'é漢😀'.repeat(8)}","b":"${'\\\\'.repeat(20)}","c":"${'\\u0041\\ud83d\\ude00'.repeat(6)}"}`,
  `{${Array.from({ length: 20 }, (_, i) => `"name_${i}":${i}`).join()}}`,
  `${'['.repeat(30)}{"deep":true}${']'.repeat(30)}`,
  `{"a":${'['.repeat(62)}0${']'.repeat(62)}}`,
  ` {\n "model" : "gpt-4o" , "x" : [ 1 , { "model" : "inner" , "stream":1 } ] , "o" : { } , "e":[ ]\r\n}\t`,
  `{"${'n'.repeat(63)}":1,"${'n'.repeat(64)}":2,"${'é'.repeat(40)}":3}`,
  '{"model":"a","model":"b","tags":{"x":1},"tags":"y","extra":{"k":1,"k":2}}',
  '{"m\\u006fdel":"a","a":{"b\\n":1},"a\\u0000":0,"c":{"\\ud800":1}}',
  '[1,0,-0,01,1e5,1E+2,0.5,.5,5.,-,1e999,true,false,null,"",{},[]]',
  `"${'plain text of a string '.repeat(4)}"`,
].map((text) => Buffer.from(text))

const TOKENS: readonly Buffer[] = [
  ...[
    '{',
    '}',
    '[',
    ']',
    ',',
    ':',
    '"',
    '\\',
    ' ',
    '\n',
    '\t',
    '\r',
    '\0',
    '\x1f',
    '\x7f',
    '\v',
    '\u00a0',
    '\u2028',
  ],
  ...[
    '{}',
    '[]',
    '""',
    '"a":',
    '"a":1,',
    '"model":',
    '"Model":',
    '"stream":true,',
    '"__proto__":{},',
    '"\\n":',
    '\ufeff',
  ],
  ...[
    'true',
    'nul',
    'NaN',
    '0',
    '-',
    '1e',
    '01',
    '1.',
    '\\"',
    '\\\\',
    '\\/',
    '\\x',
    '\\u',
    '\\u00',
    '\\u0022',
    '\\ud83d',
  ],
  ...[
    '!',
    '#',
    '[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[',
    'x'.repeat(70),
    '"a":{"b":{"c":{"d":1}}},',
    '😀',
    'é',
  ],
].map((text) => Buffer.from(text))

const ODD_BYTES = [
  0x00, 0x1f, 0x20, 0x21, 0x22, 0x23, 0x5b, 0x5c, 0x5d, 0x7f, 0x80, 0xbf, 0xc0, 0xc3, 0xe2, 0xed, 0xf0, 0xf5,
  0xff,
]

/** Makes a body with some faults, or none, at any place in its memory. */
export function mutatedBody(dice: Dice): Buffer {
  let body = pick(CORPUS, dice)
  for (let left = dice(4); left > 0; left -= 1) body = mutated(body, dice)
  const memory = Buffer.alloc(body.length + 8, pick(ODD_BYTES, dice))
  const offset = dice(8)
  body.copy(memory, offset)
  return memory.subarray(offset, offset + body.length)
}

function mutated(body: Buffer, dice: Dice): Buffer {
  const at = dice(body.length + 1)
  const end = Math.min(body.length, at + dice(dice(4) === 0 ? 80 : 4))
  const cut = (put: Buffer, from = at, to = end): Buffer =>
    Buffer.concat([body.subarray(0, from), put, body.subarray(to)])
  const other = pick(CORPUS, dice)
  const from = dice(other.length)
  switch (dice(7)) {
    case 0:
      return cut(Buffer.from([pick(ODD_BYTES, dice)]), at, Math.min(body.length, at + 1))
    case 1:
      return cut(pick(TOKENS, dice), at, at)
    case 2:
      return cut(pick(TOKENS, dice))
    case 3:
      return cut(Buffer.alloc(0))
    case 4:
      return cut(Buffer.concat([body.subarray(at, end), body.subarray(at, end)]))
    case 5:
      return cut(other.subarray(from, from + dice(40)))
    default:
      return dice(3) === 0 ? body.subarray(0, at) : cut(Buffer.from([dice(256)]), at, at)
  }
}

const pick = <One>(list: readonly One[], dice: Dice): One => list[dice(list.length)] as One
