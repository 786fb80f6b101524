import { writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import t from 'tap'
import { openDatabase } from '../../db/engine.ts'
import { type Arrival, Pipeline } from '../../plugins/plugin.ts'
import { Refusal } from '../../plugins/refusal.ts'
import type { AskCallAgain } from '../../proxy/http/route.ts'
import { LLM_ENDPOINTS } from '../../proxy/llm/dialects/registry.ts'
import { pipelines } from '../../proxy/pipelines.ts'
import { loadConfiguration } from '../../proxy/wiring/configuration.ts'
import { emptyDependencies } from '../../proxy/wiring/steps.ts'
import { askedAgain, DOORS } from '../support/asked-again/doors.ts'
import { type Entered, type EntryStage, WAYS } from '../support/asked-again/ways.ts'
import { past } from '../support/db/raw.ts'
import { proofSigner } from '../support/dpop.ts'
import { PLUGIN_FILES, scratch, writeFiles } from '../support/gateway.ts'
import { tool, toolServer } from '../support/mcp/stage.ts'
import { CLIENT_ID } from '../support/oidc/provider.ts'
import { gatewayOf, operatorsFile, reconfigure } from '../support/oidc/sign-in.ts'
import { spoiledProvider } from '../support/oidc/spoiled-provider.ts'
import { onTheMachine } from '../support/operators.ts'
import { WHOLE_SWEEP } from '../support/sweep-places.ts'

// Many handshakes and rows, one after the other.
t.setTimeout(240_000)

const CLAIMS = { claim: 'groups', map: { staff: 'owner' } }

interface RevocationStage extends EntryStage {
  readonly clock: { ms: number }
  readonly definition: { description: string }
  readonly resource: string
}

interface Revocation {
  /** Done once for each of those who have entered. */
  readonly of?: (stage: RevocationStage, who: Entered) => Promise<unknown>
  /** Done once for all, and undone afterwards. */
  readonly all?: (stage: RevocationStage) => Promise<unknown>
  readonly undo?: (stage: RevocationStage) => Promise<unknown>
  /** The ways in that it can concern, and some that it does not. Absent: all. */
  readonly ways?: RegExp
  /** True for a way in whose calls go on though it opens nothing anew: its proof or token has become too old. */
  readonly ages?: boolean
}

/** A call that was let through. */
interface UnderWay {
  readonly way: string
  readonly who: Entered
  readonly door: string
  /** The place of the door in its table. */
  readonly at: number
  /** Makes another like it. */
  readonly call: () => Promise<AskCallAgain | null>
  readonly askAgain: AskCallAgain
  readonly lessForLess: boolean
}

const ask = ({ gateway }: EntryStage, method: string, path: string, body?: unknown) =>
  onTheMachine(gateway)(method, path, body)

const ofPrincipal =
  (method: string, rest: string, body?: () => unknown): NonNullable<Revocation['of']> =>
  async (stage, { id, kind }) =>
    id !== null && ask(stage, method, `/v1/admin/${kind}s/${encodeURIComponent(id)}${rest}`, body?.())

const writes =
  (name: string, text: string): NonNullable<Revocation['all']> =>
  async ({ gateway }) => {
    await writeFile(join(gateway.pluginsDir, name), text)
    if (!(await gateway.reload())) throw new Error(`${name} is refused`)
  }

const operatorsSay =
  (oidc: Readonly<Record<string, unknown>>): NonNullable<Revocation['all']> =>
  ({ gateway, provider }) =>
    reconfigure(gateway, operatorsFile(provider.issuer, { ...CLAIMS, ...oidc }))

const OPTIONAL = writes('20-dpop.yaml', 'plugin: dpop\negress_dpop_mode: optional\n')
const EVENT = 'http://schemas.openid.net/event/backchannel-logout'
const resource =
  (change: unknown): NonNullable<Revocation['all']> =>
  (stage) =>
    ask(stage, 'PATCH', `/v1/admin/mcp-resources/${stage.resource}`, change)
const reread =
  (description: string): NonNullable<Revocation['all']> =>
  (stage) => {
    stage.definition.description = description
    return ask(stage, 'POST', `/v1/admin/mcp-resources/${stage.resource}/refresh`)
  }

/** Each revocation is held against every second door, by turns; with TEST_SWEEP=full against all. */
const isTurn = (door: number, revocation: number): boolean => WHOLE_SWEEP || (door + revocation) % 2 === 0

/** All that takes away what somebody had. */
const REVOCATIONS: Readonly<Record<string, Revocation>> = {
  nothing: { of: () => Promise.resolve() },
  'it is deactivated': { of: ofPrincipal('DELETE', '') },
  'it is erased': { of: ofPrincipal('POST', '/erase') },
  'its certificate is rotated': { of: ofPrincipal('POST', '/rotate-cert', () => ({ grace_hours: 0 })) },
  'its capabilities are taken away': {
    of: ofPrincipal('PATCH', '/capabilities', () => ({ capabilities: [] })),
  },
  'its key for proofs is another one': {
    of: ofPrincipal('POST', '/dpop-jwk', () => ({ jwk: proofSigner().jwk, grace_hours: 0 })),
  },
  'its API key is no more': {
    of: ({ gateway }, { id }) =>
      past(gateway.settings.databaseUrl, `delete from api_keys where principal_id = '${id}'`),
    ways: /API key|an agent’s certificate$/,
  },
  'its session is ended': {
    ways: /session|an operator’s certificate$/,
    of: async (stage, { id }) => {
      const { sessions } = (await ask(stage, 'GET', '/v1/admin/sessions')).json
      for (const one of sessions)
        if (one.operator === (id ?? 'admin')) await ask(stage, 'DELETE', `/v1/admin/sessions/${one.id}`)
    },
  },
  'the identity provider says that it has signed out': {
    ways: /session/,
    of: async ({ gateway, provider }, { subject }) => {
      if (subject === undefined) return
      const now = Math.floor(Date.now() / 1000)
      const claims = { iss: provider.issuer, aud: CLIENT_ID, iat: now, exp: now + 60, jti: subject }
      const token = await provider.sign({ ...claims, sub: subject, events: { [EVENT]: {} } })
      await gateway.call(null, 'POST', '/proxy/oidc/backchannel-logout', {
        headers: { 'content-type': 'application/x-www-form-urlencoded' },
        body: new URLSearchParams({ logout_token: token }).toString(),
      })
    },
  },
  'its bindings are removed': {
    ways: /agent|API key/,
    of: async (stage, { id }) => {
      const query = `agent_id=${encodeURIComponent(id ?? '')}`
      const bindings = (await ask(stage, 'GET', `/v1/admin/mcp-resources/bindings?${query}`)).json
      for (const one of bindings)
        await ask(stage, 'DELETE', `/v1/admin/mcp-resources/bindings/${one.binding_id}`)
    },
  },
  'the tool is quarantined': { all: reread('another text'), undo: reread('') },
  'the server is disabled': { all: resource({ enabled: false }), undo: resource({ enabled: true }) },
  'the tool demands more': {
    all: resource({ required_capability: 'files.more' }),
    undo: resource({ required_capability: 'files.use' }),
  },
  enforce_tools_call: {
    all: writes('60-mcp.yaml', 'plugin: mcp\nenforce_tools_call: true\n'),
    undo: writes('60-mcp.yaml', 'plugin: mcp\n'),
  },
  'egress_dpop_mode: required': {
    all: writes('20-dpop.yaml', 'plugin: dpop\negress_dpop_mode: required\n'),
    undo: OPTIONAL,
  },
  no_downgrade: {
    all: writes('20-dpop.yaml', 'plugin: dpop\negress_dpop_mode: optional\nno_downgrade: true\n'),
    undo: OPTIONAL,
  },
  'the map names nobody': { all: operatorsSay({ map: {} }), undo: operatorsSay({}) },
  'another acr is demanded': { all: operatorsSay({ acr_values: ['mfa'] }), undo: operatorsSay({}) },
  'another amr is demanded': { all: operatorsSay({ amr_values: ['hwk'] }), undo: operatorsSay({}) },
  'another identity provider': {
    all: operatorsSay({ client_id: 'another' }),
    undo: operatorsSay({}),
  },
  'the secret is disabled': {
    all: (stage) => ask(stage, 'POST', '/v1/admin/secret/disable'),
    undo: (stage) => ask(stage, 'POST', '/v1/admin/secret/enable'),
  },
  // Behind it nobody comes in by the secret of the tests any more.
  'the secret is another one': {
    all: (stage) => ask(stage, 'POST', '/v1/admin/secret/rotate', { new_secret: 'another-secret-of-ours' }),
  },
  'nine hours pass': {
    all: async ({ clock }) => {
      clock.ms += 9 * 3_600_000
    },
    undo: async ({ clock }) => {
      clock.ms -= 9 * 3_600_000
    },
    ages: true,
  },
}

await t.test(
  'H3, H4 whatever would refuse a call that begins refuses one that is under way: doors × ways in × revocations',
  async (t) => {
    const clock = { ms: 0 }
    let monotonic = 0
    const provider = await spoiledProvider(t)
    const gateway = await gatewayOf(t, provider, {
      oidc: CLAIMS,
      settings: { MCP_PROXY_ALLOW_PRIVATE_UPSTREAMS: 'true' },
      clock: () => Date.now() + clock.ms,
      monotonic: () => monotonic,
      editsTables: true,
    })
    const definition = { ...tool('read'), description: '' }
    const server = await toolServer(t, [definition])
    const made = await onTheMachine(gateway)('POST', '/v1/admin/mcp-resources', {
      name: 'files',
      endpoint_url: server.url,
      required_capability: 'files.use',
    })
    const stage = { gateway, provider, clock, definition, resource: made.json.resource_id }
    const under = askedAgain()
    const callers = async (name: string, ways = /./): Promise<readonly UnderWay[]> => {
      monotonic += 60_000
      const open: UnderWay[] = []
      for (const [place, [way, enter]] of Object.entries(WAYS).entries()) {
        if (!ways.test(way)) continue
        const who = await enter(stage, `${name}x${place}`)
        const bound = { agent_id: who.id, resource_id: stage.resource }
        if (who.kind === 'agent') await ask(stage, 'POST', '/v1/admin/mcp-resources/bindings', bound)
        for (const [at, [door, one]] of Object.entries(DOORS).entries()) {
          const { opens, method, path, body, lessForLess = false } = one
          if (!opens(who) || !(name === 'shared' || isTurn(at, Number(name.slice(1))))) continue
          const call = () => under(() => who.call(method, path, body))
          const askAgain = await call()
          if (!askAgain) throw new Error(`${way}, ${door}: is not let through`)
          open.push({ way, who, door, at, call, askAgain, lessForLess })
        }
      }
      return open
    }
    // What is taken from all is given back afterwards: they serve for all of these.
    let shared: readonly UnderWay[] | null = null
    for (const [number, [what, revocation]] of Object.entries(REVOCATIONS).entries()) {
      if (!revocation.of) shared ??= await callers('shared')
      const open = shared ?? (await callers(`n${number}`, revocation.ways))
      await revocation.all?.(stage)
      for (const who of new Set(open.map((one) => one.who))) await revocation.of?.(stage, who)
      const refused = new Set<string>()
      const entered = new Set<Entered>()
      const wrong: string[] = []
      let agree = 0
      for (const { way, who, door, at, call, askAgain, lessForLess } of open) {
        if (!isTurn(at, number)) continue
        const says = `${what}: ${way}, ${door}`
        const held = await askAgain({ at: Date.now() + clock.ms }).then(
          () => true,
          (error: unknown) => {
            if (!(error instanceof Refusal)) throw error
            return false
          },
        )
        const begins = (await call()) !== null
        if (!begins) refused.add(way)
        const hasAged = revocation.ages === true && /proof$|token/.test(way)
        if (held === begins) agree += 1
        // Its proof or token is too old to begin with, and no more; who holds less gets less.
        else if (!((hasAged && held) || (lessForLess && begins)))
          wrong.push(
            `${says}: ${held ? 'goes on' : 'is cut'}, and one that begins ${begins ? 'is let in' : 'is not'}`,
          )
        // A session is no way around what would refuse its sign-in.
        if (begins && who.enters && !entered.has(who)) {
          monotonic += 60_000
          if (!(await who.enters())) wrong.push(`${says}: could not sign in again`)
        }
        entered.add(who)
      }
      t.same(wrong, [], `${what}: ${agree} calls under way are judged as those that begin`)
      t.equal(refused.size > 0, what !== 'nothing', `${what}: refuses ${[...refused].join('; ') || 'nobody'}`)
      await revocation.undo?.(stage)
    }
  },
)

/** The plugins whose question is about the message, or about where it comes from: neither changes while a call is under way. */
const ABOUT_THE_MESSAGE: Readonly<Record<string, string>> = {
  origin: 'the page that asks',
  demand: 'the route',
  json_body: 'the body',
  llm_members: 'the members that a caller may not send: about the body alone',
  provider_state: 'the ids that the body names: what an answer has stated stays so',
  approval: 'what somebody has approved of this very call, which uses it up',
  limits: 'what a call has reserved when it was decided on',
  llm_call: 'the model that is asked for: a call goes on by the configuration that it began with',
  mcp_message: 'the message',
  mcp_peek: 'the message',
  mcp_state: 'the state that the message carries',
  single_use: 'whether its proof was new',
  token_request: 'the body',
  token_proof: 'the proof, which the token is then bound to',
  form: 'the body',
  csrf: 'the token of the form',
  setup: 'whether a secret is stored: the call itself stores it',
  visitor: 'whose session ends: whoever may do nothing more may still end it',
  admin_secret: 'the secret of a sign-in: the session that begins is asked',
  local_operator: 'who may open the control socket',
  // Of a change: its one transaction asserts what they rest on.
  operation_input: 'the input; what it demands, the door asks again',
  dry_run: 'the input',
  resolved_change: 'the input',
  rehearsal: 'the rehearsal that the input names, and the state that it was of',
  expectation: 'two changes at once may break together what neither breaks alone',
  second_operator: 'that nobody else holds what it demands: the transaction asserts it',
  row_detail: 'what the questions before it found',
}
/** The same question twice in a list, behind a body: the other one is asked again. */
const ASKED_BEFORE = ['capability', 'operator', 'mcp_target', 'pin']

await t.test('H3 every question of every door is asked again, or is about the message alone', async (t) => {
  const directory = await scratch(t)
  await writeFiles(directory, PLUGIN_FILES, 'http://127.0.0.1:1')
  const configuration = await loadConfiguration(directory, {})
  const database = await openDatabase('sqlite::memory:')
  t.teardown(() => database.close())
  const all = pipelines({ configuration, inForce: () => configuration, ...emptyDependencies(database) })
  // No call waits behind what is judged without one.
  const { whatIf: _, ...doors } = all
  const lists = [...listsOf(doors, '')]
  t.ok(lists.length >= 20, `${lists.length} lists of questions`)
  for (const [door, { names, namesAskedAgain }] of lists) {
    for (const name of new Set(names)) {
      const isOnce = Object.hasOwn(ABOUT_THE_MESSAGE, name)
      t.not(namesAskedAgain.includes(name), isOnce, `${door}: ${name} is asked ${isOnce ? 'once' : 'again'}`)
    }
    const times = (list: readonly string[], name: string) => list.filter((one) => one === name).length
    for (const name of new Set(namesAskedAgain))
      if (!ASKED_BEFORE.includes(name))
        t.equal(times(names, name), times(namesAskedAgain, name), `${door}: ${name}, each of that name`)
  }
})

/** All pipelines that there are, also those that are made for an endpoint or an operation. */
function* listsOf(value: unknown, name: string): Generator<readonly [string, Pipeline<Arrival>]> {
  if (value instanceof Pipeline) yield [name, value]
  else if (typeof value === 'function')
    yield* listsOf(
      value(name.endsWith('.llm.call') ? LLM_ENDPOINTS[0] : { action: 'a', demands: 'admin.read' }),
      name,
    )
  else if (typeof value === 'object' && value !== null)
    for (const [member, one] of Object.entries(value)) yield* listsOf(one, `${name}.${member}`)
}
