import fc from 'fast-check'

/** The principals of a history, and the MCP servers that they may call, by their numbers. */
export const PEOPLE = 3
export const SERVERS = 2

/** Capabilities that calls demand, and one that none does. */
export const HELD = [
  ...['llm.chat', 'mcp.tools.list', 'mcp.tools.call', 'files.use', 'files.write', 'http.get'],
  ...['mcp.prompts.get', 'mcp.resources.read', 'x'],
]

/** A part of authority, about which there is one change at once. */
export type Part =
  | { readonly kind: 'set' | 'active'; readonly who: number }
  | { readonly kind: 'bound'; readonly who: number; readonly server: number }
  | { readonly kind: 'server'; readonly server: number }
  | { readonly kind: 'settings' }

const people = Array.from({ length: PEOPLE }, (_, who) => who)
const servers = Array.from({ length: SERVERS }, (_, server) => server)

/** All there are; the settings last. */
export const PARTS: readonly Part[] = [
  ...people.flatMap((who): Part[] => [
    { kind: 'set', who },
    { kind: 'active', who },
    ...servers.map((server): Part => ({ kind: 'bound', who, server })),
  ]),
  ...servers.map((server): Part => ({ kind: 'server', server })),
  { kind: 'settings' },
]

/** What is so of a part, by the names that changes have for it. */
export type Members = Readonly<Record<string, unknown>>

/** What is so of all {@link PARTS}, in their order. */
export type Authority = readonly Members[]

/** What comes to be so of some of them; null of the others. */
export type Changed = readonly (Members | null)[]

export const changedBy = (authority: Authority, changed: Changed): Authority =>
  authority.map((members, index) => ({ ...members, ...changed[index] }))

const often = <T, U>(usual: T, other: U, times: number) =>
  fc.oneof({ arbitrary: fc.constant(usual), weight: times }, { arbitrary: fc.constant(other), weight: 1 })

/** Most of what is demanded: of a set that lacks half of it nothing can be taken away. */
const SET = {
  capabilities: fc
    .tuple(...HELD.map((one) => often<string | null, string | null>(one, null, 3)))
    .map((drawn) => drawn.filter((one) => one !== null)),
}
const SERVER = {
  required_capability: fc.constantFrom(null, 'files.use', 'x', 'mcp.tools.call'),
  tool_capabilities: fc.constantFrom({}, {}, { write: 'files.write' }, { read: 'x', changed: 'files.write' }),
  enabled: often(true, false, 5),
}
const SETTINGS = {
  egress_dpop_mode: fc.constantFrom('optional', 'optional', 'optional', 'required', 'off'),
  no_downgrade: often(false, true, 2),
  enforce_tools_call: often(false, true, 2),
}

/** Whether a check of the operator's own is asked. No change can be about that. */
const CHECKED = { checked: often(false, true, 3) }

/** The settings that most histories have: others cost a reload. */
export const USUAL: Members = {
  egress_dpop_mode: 'optional',
  no_downgrade: false,
  enforce_tools_call: false,
  checked: false,
}

function membersOf({ kind }: Part): fc.Arbitrary<Members> {
  switch (kind) {
    case 'set':
      return fc.record(SET)
    case 'active':
      return fc.record({ is_active: often(true, false, 12) })
    case 'bound':
      return fc.record({ bound: often(true, false, 2) })
    case 'server':
      return fc.record(SERVER)
    case 'settings':
      return fc.oneof(
        { arbitrary: fc.constant(USUAL), weight: 2 },
        { arbitrary: fc.record({ ...SETTINGS, ...CHECKED }), weight: 1 },
      )
  }
}

/** Some of what a change can say of a part: nobody is rehearsed back into service. */
function changeTo({ kind }: Part): fc.Arbitrary<Members> {
  switch (kind) {
    case 'set':
      return fc.record(SET)
    case 'active':
      return fc.constant({ is_active: false })
    case 'bound':
      return fc.record({ bound: fc.boolean() })
    case 'server':
      return some(SERVER)
    case 'settings':
      return some(SETTINGS)
  }
}

const some = (members: Readonly<Record<string, fc.Arbitrary<unknown>>>): fc.Arbitrary<Members> =>
  fc.record(members, { requiredKeys: [] }).filter((drawn) => Object.keys(drawn).length > 0)

const ALL = PARTS.map((_, index) => index)
const of = (kind: Part['kind']) => fc.constantFrom(...ALL.filter((index) => PARTS[index]?.kind === kind))

export const authority: fc.Arbitrary<Authority> = fc.tuple(...PARTS.map(membersOf))

/** What an operator does between calls: to a few parts. */
export const altered: fc.Arbitrary<Changed> = ofParts(membersOf, 4)

/** What is rehearsed. */
export const changed: fc.Arbitrary<Changed> = ofParts(changeTo, 5)

function ofParts(drawn: (part: Part) => fc.Arbitrary<Members>, most: number): fc.Arbitrary<Changed> {
  const number = fc.oneof(
    { arbitrary: fc.constantFrom(...ALL), weight: 4 },
    { arbitrary: of('set'), weight: 4 },
    { arbitrary: of('settings'), weight: 1 },
  )
  return fc
    .uniqueArray(number, { minLength: 1, maxLength: most, size: 'max' })
    .chain((chosen) =>
      fc.tuple(...PARTS.map((part, index) => (chosen.includes(index) ? drawn(part) : fc.constant(null)))),
    )
}
