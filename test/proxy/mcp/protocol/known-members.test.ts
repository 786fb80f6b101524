import {
  ImplementationSchema,
  PromptSchema,
  ResourceSchema,
  ResourceTemplateSchema,
  ToolSchema,
} from '@modelcontextprotocol/sdk/types.js'
import fc from 'fast-check'
import t from 'tap'
import { isObject, type UnknownRecord } from '../../../../db/support/json.ts'
import {
  IMPLEMENTATION_MEMBERS,
  knownMembers,
  LIST_ITEM_MEMBERS,
  LIST_MEMBER_BY_METHOD,
  mistakenMembers,
  TOOL_MEMBERS,
} from '../../../../proxy/mcp/protocol/known-members.ts'

const shapeOf = (member: string) => LIST_ITEM_MEMBERS.get(member) ?? {}

t.test('every member that the official SDK knows is known', async (t) => {
  const pairs = [
    [ToolSchema, TOOL_MEMBERS],
    [ImplementationSchema, IMPLEMENTATION_MEMBERS],
    [PromptSchema, shapeOf('prompts')],
    [ResourceSchema, shapeOf('resources')],
    [ResourceTemplateSchema, shapeOf('resourceTemplates')],
  ] as const
  for (const [{ shape }, known] of pairs) {
    t.same(
      Object.keys(shape).filter((name) => !Object.hasOwn(known, name)),
      [],
    )
  }
  const { annotations, execution, icons } = ToolSchema.shape
  const inner = [
    ['annotations', annotations.unwrap().shape],
    ['execution', execution.unwrap().shape],
    ['icons', icons.unwrap().element.shape],
  ] as const
  for (const [name, shape] of inner) t.same(Object.keys(shape), Object.keys(TOOL_MEMBERS[name] ?? {}), name)
  const [argument, some] = [PromptSchema.shape.arguments.unwrap().element, shapeOf('prompts').arguments]
  for (const name of Object.keys(argument.shape)) t.ok(some && Object.hasOwn(some, name), name)
  t.same([...LIST_MEMBER_BY_METHOD.values()], [...LIST_ITEM_MEMBERS.keys()])
})

const CASES = [
  (name: string) => name,
  (name: string) => name.toUpperCase(),
  (name: string) => name.charAt(0).toUpperCase() + name.slice(1),
  (name: string) => name.replace('s', '\u017f'),
  (name: string) => name.replace('k', '\u212a'),
]
const spelt = (known: object): fc.Arbitrary<string> =>
  fc
    .tuple(fc.constantFrom(...Object.keys(known), 'vendor'), fc.constantFrom(...CASES))
    .map(([name, write]) => write(name))

/** Reads an object as Go does: the last of the members that fold onto a name is it. */
const readAsGo = (value: unknown, known: object): unknown => {
  if (Array.isArray(value)) return value.map((item) => readAsGo(item, known))
  if (!isObject(value)) return value
  const read = new Map<string, unknown>()
  for (const [written, inner] of Object.entries(value)) {
    const fold = written.toLowerCase().replace('\u017f', 's').replace('\u212a', 'k')
    const name = Object.keys(known).find((one) => one.toLowerCase() === fold)
    const shape: unknown = name === undefined ? undefined : Reflect.get(known, name)
    if (name !== undefined) read.set(name, isObject(shape) ? readAsGo(inner, shape) : inner)
  }
  return Object.fromEntries(read)
}

t.test('H1b: what goes on is one object to every reader, and what was not is found', async () => {
  const annotations = fc.dictionary(spelt(TOOL_MEMBERS.annotations ?? {}), fc.boolean())
  const icons = fc.array(fc.dictionary(spelt(TOOL_MEMBERS.icons ?? {}), fc.string()), { maxLength: 3 })
  const definition = fc.dictionary(spelt(TOOL_MEMBERS), fc.oneof(fc.string(), annotations, icons))
  fc.assert(
    fc.property(definition, (given) => {
      const value = JSON.parse(JSON.stringify(given)) as UnknownRecord
      const listed = knownMembers(value, TOOL_MEMBERS)
      const text = (one: unknown): string => JSON.stringify(sorted(one))
      if (text(readAsGo(listed, TOOL_MEMBERS)) !== text(listed)) return false
      // Nothing that folds, and Go reads of the whole what is exact in it.
      const isFound = mistakenMembers(value, TOOL_MEMBERS).length > 0
      return isFound || text(readAsGo(value, TOOL_MEMBERS)) === text(listed)
    }),
    { numRuns: 500 },
  )
})

const sorted = (value: unknown): unknown => {
  if (Array.isArray(value)) return value.map(sorted)
  if (!isObject(value)) return value
  return Object.fromEntries(
    Object.entries(value)
      .map(([name, inner]) => [name, sorted(inner)] as const)
      .sort(([one], [other]) => (one < other ? -1 : 1)),
  )
}
