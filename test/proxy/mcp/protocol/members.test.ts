import t from 'tap'
import type { UnknownRecord } from '../../../../db/support/json.ts'
import { applyEdits, readObject } from '../../../../proxy/mcp/protocol/json-text.ts'
import { knownParams, PARAMS_BY_METHOD } from '../../../../proxy/mcp/protocol/members.ts'
import { foldingRead } from '../../../support/mcp/second-readers.ts'

type Rows = typeof PARAMS_BY_METHOD extends ReadonlyMap<string, infer Row> ? Row : never

// A generator of its own: a failure can be had again.
let seed = 7
const random = (below: number): number => {
  seed = (seed * 1_103_515_245 + 12_345) & 0x7fffffff
  return (seed >> 8) % below
}
const oneOf = <Item>(items: readonly [Item, ...Item[]]): Item => items[random(items.length)] ?? items[0]

const LETTERS: Readonly<Record<string, string>> = { s: '\u017f', k: '\u212a' }
const respelt = (name: string): string =>
  name.replace(/./gu, (letter) => (random(8) > 0 ? letter : (LETTERS[letter] ?? letter.toUpperCase())))

/** Names that a row has, and some that it has not, most of them by their letters. */
function membersOf({ names, inner }: Rows, depth: number): string {
  const own = ['x', 'vendor', '__proto__', ...names.exact] as const
  const members = Array.from({ length: random(5) }, () => {
    const name = oneOf(own)
    const within = inner.get(name)
    const value =
      within && depth > 0 && random(3) > 0 ? membersOf(within, depth - 1) : oneOf(['1', '"v"', '{"a":1}'])
    return [random(5) > 0 ? name : respelt(name), value] as const
  })
  return `{${[...new Map(members)].map(([name, value]) => `${JSON.stringify(name)}:${value}`).join(',')}}`
}

/** Tells of what a folding reader sees otherwise than a reader of exact names, or what the row does not have. */
function faultIn(value: UnknownRecord, row: Rows): string | null {
  const folded = foldingRead(value, [...row.names.exact])
  for (const [name, member] of Object.entries(value)) {
    if (!row.names.exact.has(name)) {
      if (!row.open) return name
    } else if (folded[name] !== member) return name
    const within = row.inner.get(name)
    const fault =
      within && typeof member === 'object' && member !== null
        ? faultIn(member as UnknownRecord, within)
        : null
    if (fault !== null) return fault
  }
  return null
}

t.test(
  'H1: of random parameters a folding server reads what was judged, and nothing else goes to it',
  async (t) => {
    let passed = 0
    let refused = 0
    for (const [method, row] of PARAMS_BY_METHOD) {
      for (let round = 0; round < 1_000; round += 1) {
        const text = membersOf(row, 2)
        const object = readObject(Buffer.from(text))
        try {
          const { params, edits } = knownParams(method, object.value, { body: object.bytes, wide: new Set() })
          const sent = readObject(Buffer.from(applyEdits(object, edits))).value
          passed += 1
          if (faultIn(sent, row) !== null) t.fail(`${method} ${text}`)
          if (JSON.stringify(sent) !== JSON.stringify(params)) t.fail(`${method} ${text} is judged otherwise`)
        } catch (error) {
          refused += 1
          t.equal(error instanceof Error && error.message.includes('which some servers read as'), true, text)
        }
      }
    }
    t.ok(passed > 5_000 && refused > 500, `${passed} passed, ${refused} were refused`)
  },
)
