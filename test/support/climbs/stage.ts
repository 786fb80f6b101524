import type { Test } from 'tap'
import { ADMIN_CAPABILITIES } from '../../../plugins/operators/capabilities.ts'
import { type Foreign, trustDomain } from '../foreign.ts'
import { ADMIN_SECRET, type Answered, CHAT, type Identity, type Json } from '../gateway.ts'
import { type RawMcp, rawMcp } from '../mcp/raw-upstream.ts'
import { legacyWith, mcpStage, type Stage, tool } from '../mcp/stage.ts'
import { onTheMachine, operatorOnTheMachine } from '../operators.ts'

/** The names of each kind of principal in paths and bodies. */
export const PLURALS = {
  Agent: ['agents', 'agent_name'],
  User: ['users', 'user_name'],
  Workload: ['workloads', 'workload_name'],
  Operator: ['operators', 'operator_name'],
} as const

export type Noun = keyof typeof PLURALS

export interface Tried {
  readonly params?: Readonly<Record<string, string>>
  readonly query?: string
  readonly body?: unknown
  readonly headers?: Readonly<Record<string, string>>
  /** The key of what is asked to be certified. */
  readonly key?: string
}

interface Route {
  readonly method: string
  readonly path: string
}

type Domain = Awaited<ReturnType<typeof trustDomain>>

/** Whoever holds one capability, with all that it has of its own. */
export interface Holder {
  /** Its own principals, who hold nothing. */
  readonly own: Readonly<Record<Noun, Identity>>
  /** A trust domain of its own, whose CA somebody has attached; and another one. */
  readonly evil: Domain
  readonly unattached: Domain
  /** Its own MCP server. */
  readonly server: RawMcp
  /** An agent of somebody else, under the honest CA. */
  readonly pay: string
  readonly evilDigest: string
  readonly ask: (route: Route, tried: Tried) => Promise<Answered>
  /** Lists what it can do now that it could not before. */
  readonly reached: () => Promise<readonly string[]>
}

export interface ClimbStage {
  readonly gateway: Stage
  readonly machine: ReturnType<typeof onTheMachine>
  readonly routes: ReadonlyMap<string, Route>
  readonly honest: Domain
  readonly honestDigest: string
  /** A server of somebody else, whose secret the gateway knows. */
  readonly files: Json
  /** The id of somebody else of a kind. */
  readonly victim: (noun: Noun) => Promise<string>
  /** Makes a thing that operations are tried on: once, until one of them has succeeded. */
  readonly pooled: Pooled['take']
  readonly spent: () => void
  readonly holderOf: (capability: string) => Promise<Holder>
}

export const MCP_SECRET = 'the-secret-of-another-server'

/** A gateway with somebody of each kind to become, and the routes of all operations. */
export async function climbStage(t: Test): Promise<ClimbStage> {
  const gateway = await mcpStage(t, { env: { MCP_SECRET_FILES: MCP_SECRET } })
  const machine = onTheMachine(gateway)
  const honest = await trustDomain()
  const honestDigest = await attached(machine, honest.caPem)
  const server = await rawMcp(t, legacyWith([tool('read')]))
  const files = await gateway.register('files', server, {
    required_capability: 'files.use',
    auth_type: 'bearer',
    auth_secret_ref: 'env:MCP_SECRET_FILES',
  })
  const { json: document } = await gateway.call(null, 'GET', '/openapi.json')
  const count = counter()
  const pool = new Pooled()
  const victim = (noun: Noun): Promise<string> =>
    pool.take(noun, async () => (await minted(machine, noun, `v${count()}`, HELD[noun])).id)
  const stage = {
    gateway,
    machine,
    honest,
    honestDigest,
    files,
    victim,
    pooled: pool.take,
    spent: pool.spent,
    routes: routesOf(document),
  }
  return { ...stage, holderOf: (capability) => holder(t, stage, capability, count) }
}

class Pooled {
  readonly #made = new Map<string, Promise<unknown>>()

  readonly take = <T>(name: string, make: () => Promise<T>): Promise<T> => {
    const made = this.#made.get(name) ?? make()
    this.#made.set(name, made)
    // Of that name there is one kind of thing.
    return made as Promise<T>
  }

  readonly spent = (): void => this.#made.clear()
}

const HELD = {
  Agent: ['llm.chat'],
  User: ['llm.chat'],
  Workload: ['llm.chat'],
  Operator: ADMIN_CAPABILITIES,
} as const

function counter(): () => number {
  let next = 0
  return () => {
    next += 1
    return next
  }
}

function routesOf(document: Json): ReadonlyMap<string, Route> {
  const found = new Map<string, Route>()
  for (const [path, methods] of Object.entries<Record<string, Json>>(document.paths)) {
    if (!path.startsWith('/v1/admin/')) continue
    for (const [method, { operationId }] of Object.entries(methods))
      found.set(operationId, { method: method.toUpperCase(), path })
  }
  return found
}

type Machine = ClimbStage['machine']

async function attached(machine: Machine, caPem: string): Promise<string> {
  const { status, json, text } = await machine('POST', '/v1/admin/ca/attach', {
    ca_pem: caPem,
    kind: 'spiffe',
  })
  if (status !== 201) throw new Error(text)
  return json[0].digest
}

async function minted(
  machine: Machine,
  noun: Noun,
  name: string,
  capabilities: readonly string[],
): Promise<Identity> {
  const [plural, field] = PLURALS[noun]
  const created = await machine('POST', `/v1/admin/${plural}`, { [field]: name, capabilities })
  if (created.status !== 201) throw new Error(created.text)
  const id = created.json.agent_id ?? created.json.principal_id
  const { json } = await machine('POST', `/v1/admin/${plural}/${id}/rotate-cert`, { grace_hours: 0 })
  return { id, cert: json.cert_chain_pem, key: json.private_key_pem }
}

const identity = (id: string, { certPem, keyPem }: Foreign): Identity => ({ id, cert: certPem, key: keyPem })

async function holder(
  t: Test,
  stage: Omit<ClimbStage, 'holderOf'>,
  capability: string,
  count: () => number,
): Promise<Holder> {
  const { gateway, machine, honest } = stage
  const name = capability.replace('.', '-')
  const self = await operatorOnTheMachine(gateway, name, [capability])
  const [evil, unattached] = [await trustDomain(), await trustDomain()]
  const evilDigest = await attached(machine, evil.caPem)
  const spiffeId = `spiffe://spire.test/${name}`
  const { certPem, keyPem } = await honest.svid(spiffeId)
  const enrolled = await machine('POST', '/v1/admin/agents/enroll/spiffe', {
    ...{ agent_name: `pay-${name}`, capabilities: ['llm.chat'], svid_pem: certPem, svid_key_pem: keyPem },
  })
  if (enrolled.status !== 201) throw new Error(enrolled.text)
  const pay = enrolled.json.agent_id
  const own = {
    Agent: await minted(machine, 'Agent', `own${count()}`, []),
    User: await minted(machine, 'User', `own${count()}`, []),
    Workload: await minted(machine, 'Workload', `own${count()}`, []),
    Operator: await minted(machine, 'Operator', `own${count()}`, []),
  }
  const server = await rawMcp(t, legacyWith([tool('evil')]))
  // What it has got hold of: certificates with their keys, secrets, texts that it was shown.
  const loot: Identity[] = []
  let secret: string | null = null
  const shown: string[] = []
  // The types of principals that it has made with a set.
  const made = new Set<string>()
  const svids = [identity(pay, await evil.svid(spiffeId)), identity(pay, await unattached.svid(spiffeId))]

  const ask: Holder['ask'] = async ({ method, path }, { params = {}, query = '', body, headers, key }) => {
    const url = path.replaceAll(/\{(\w+)\}/g, (_, one: string) => encodeURIComponent(params[one] ?? 'none'))
    const answer = await gateway.call(self, method, `${url}${query}`, {
      ...(body !== undefined && { body }),
      ...(headers && { headers }),
    })
    shown.push(answer.text)
    if (answer.status >= 300) return answer
    const { cert_chain_pem: cert, private_key_pem: minted = key } = answer.json ?? {}
    if (answer.json?.capabilities?.length > 0 && answer.status === 201) made.add(answer.json.principal_type)
    if (cert && minted) loot.push({ id: '', cert, key: minted })
    if (path.endsWith('/secret/rotate')) secret = (body as { new_secret: string }).new_secret
    return answer
  }

  const calls = async (who: Identity): Promise<boolean> =>
    (await gateway.call(who, 'POST', '/v1/chat/completions', { body: CHAT })).status === 200
  const owns = async (who: Identity | null, headers: Record<string, string> = {}): Promise<boolean> =>
    (await gateway.call(who, 'DELETE', '/v1/admin/operators/none', { headers })).status === 404
  const some = async (
    list: readonly Identity[],
    can: (who: Identity) => Promise<boolean>,
  ): Promise<boolean> => {
    for (const one of list) if (await can(one)) return true
    return false
  }
  const isOwner = capability === 'admin.operators'

  const reached: Holder['reached'] = async () => {
    const found: string[] = []
    if (await some([...loot, ...svids], calls)) found.push('callers')
    const makesCallers = [...made].some((type) => type !== 'operator')
    if (makesCallers || (await some([own.Agent, own.User, own.Workload], calls))) found.push('sets')
    const asOperator =
      (await some([...loot, own.Operator], owns)) ||
      (secret !== null && (await owns(null, { 'x-admin-secret': secret }))) ||
      (!isOwner && (await owns(self))) ||
      made.has('operator')
    if (asOperator) found.push('operators')
    const told = server.told.map(({ headers }) => JSON.stringify(headers)).join('')
    if (told.includes(MCP_SECRET)) found.push('secrets')
    const leaked = [MCP_SECRET, ADMIN_SECRET, 'sk-upstream-openai'].some((one) =>
      shown.some((text) => text.includes(one)),
    )
    if (leaked) found.push('leaked')
    // Each certificate of somebody else was tried once.
    loot.length = 0
    shown.length = 0
    return found
  }
  return { own, evil, unattached, server, pay, evilDigest, ask, reached }
}
