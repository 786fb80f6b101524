import { execFile } from 'node:child_process'
import { writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { promisify } from 'node:util'
import fc from 'fast-check'
import t from 'tap'
import { databaseLocation } from '../../db/engine.ts'
import { walkOnThread } from '../../db/rehearsal/thread.ts'
import { without } from '../support/certs/openssl.ts'
import { databaseUrl } from '../support/db/engine.ts'
import { ALL } from '../support/db/rehearsal.ts'
import { proofSigner } from '../support/dpop.ts'
import type { Identity } from '../support/gateway.ts'
import { type World, world } from '../support/history/world.ts'
import { WHOLE_SWEEP } from '../support/sweep-places.ts'
import { verbsInTurn } from '../support/verbs-in-turn.ts'

const sallyport = verbsInTurn(t)

const ROUNDS = 3
const STEPS = WHOLE_SWEEP ? 200 : 100
/** More than have a row of their own in a minute. */
const FLOOD = 70
/** The rounds of calls before it begins. */
const CERTAIN = 9
const SETS = [
  [],
  ['llm.chat'],
  ['mcp.tools.list'],
  ['files.use', 'llm.chat'],
  ['files.use', 'mcp.tools.call'],
  ['x'],
]
const DEMANDS = [null, 'files.use', 'x']
const VERIFIER = join(import.meta.dirname, '../../docs/verify.py')

const KINDS = [
  ...['grant', 'grant', 'deactivate', 'reactivate', 'rotate', 'key', 'bind', 'unbind', 'demand', 'enable'],
  ...['mode', 'change', 'approve', 'erase', 'flood', 'broken', 'unknown'],
  ...['chat', 'chat', 'chat', 'list', 'list', 'read', 'read', 'write', 'door'],
] as const
const step = fc.record({
  kind: fc.constantFrom(...KINDS),
  who: fc.nat(5),
  one: fc.nat(5),
  yes: fc.boolean(),
})
type Step = typeof step extends fc.Arbitrary<infer S> ? S : never

const pathOf = ({ id }: Identity): string => `/v1/admin/${id.includes('::user::') ? 'users' : 'agents'}/${id}`

/** Does one thing of a history. What it is answered does not matter: the ledger says what was decided. */
async function play(
  w: World,
  people: Identity[],
  resource: string,
  { kind, who, one, yes }: Step,
): Promise<void> {
  const { admin, rpc } = w
  const person = people[who % people.length]
  if (!person) return
  const path = pathOf(person)
  const resources = '/v1/admin/mcp-resources'
  switch (kind) {
    case 'grant':
      return void (await admin('PATCH', `${path}/capabilities`, { capabilities: SETS[one] }))
    case 'deactivate':
      return void (yes && (await admin('DELETE', path)))
    case 'reactivate':
      return void (await admin('POST', `${path}/reactivate`))
    case 'rotate': {
      const { json } = await admin('POST', `${path}/rotate-cert`, { grace_hours: yes ? 1 : 0 })
      // The one before may go on for its grace.
      if (one > 1)
        people[who % people.length] = { ...person, cert: json.cert_chain_pem, key: json.private_key_pem }
      return
    }
    case 'key':
      return void (one === 0 && (await admin('POST', `${path}/dpop-jwk`, proofSigner().jwk)))
    case 'bind':
      return void (await admin('POST', `${resources}/bindings`, {
        agent_id: person.id,
        resource_id: resource,
      }))
    case 'unbind': {
      const { json } = await admin('GET', `${resources}/bindings?agent_id=${person.id}`)
      if (json[0]) await admin('DELETE', `${resources}/bindings/${json[0].binding_id}`)
      return
    }
    case 'demand': {
      const tool_capabilities = yes ? { write: 'x' } : {}
      return void (await admin('PATCH', `${resources}/${resource}`, {
        required_capability: DEMANDS[one % 3],
        tool_capabilities,
      }))
    }
    case 'enable':
      return void (await admin('PATCH', `${resources}/${resource}`, { enabled: one > 0 }))
    case 'mode':
      return w.dpopMode(one === 0 ? 'required' : 'optional', yes)
    case 'change':
      w.tools.set(yes ? 'read' : 'write', `Does something else: ${one}.`)
      return void (await admin('POST', `${resources}/${resource}/refresh`))
    case 'approve': {
      const { json } = await admin('GET', `${resources}/${resource}`)
      const name = yes ? 'read' : 'write'
      const digest =
        json.tools.find((tool: { name: string }) => tool.name === name).pending_digest ?? '0'.repeat(64)
      return void (await admin('POST', `${resources}/${resource}/tools/${name}/approve`, { digest }))
    }
    case 'erase': {
      if (!person.id.includes('::user::') || one > 1) return
      await admin('POST', `${path}/erase`)
      people[who % people.length] = await w.newUser(person.id.split('::')[2] ?? '')
      return
    }
    case 'flood':
      return void (one === 0 && (await Promise.all(Array.from({ length: FLOOD }, () => w.chat(person)))))
    case 'broken':
      return void (await w.chat(person, { model: one }))
    case 'unknown':
      return void (await rpc(person, 'tools/call', { name: yes ? 'files.nothing' : 'nowhere.tool' }))
    case 'list':
      return void (await rpc(person, 'tools/list', {}, yes ? '/files' : ''))
    case 'read':
    case 'write':
      return void (await rpc(person, 'tools/call', { name: `files.${kind}`, arguments: { yes } }))
    case 'door':
      return void (await rpc(person, 'tools/call', { name: 'read' }, '/files'))
    case 'chat':
      return void (await w.chat(person))
  }
}

await t.test(
  'of a random history with crashes every decision follows from the rows before it, as two verifiers compute',
  { skip: without('openssl') },
  async (t) => {
    const w = await world(t)
    const people: Identity[] = []
    for (const name of ['a', 'b', 'c', 'd']) {
      const { json } = await w.admin('POST', '/v1/admin/agents', { agent_name: name, capabilities: SETS[3] })
      people.push({ id: json.agent_id, cert: json.cert_chain_pem, key: json.private_key_pem })
    }
    people.push(await w.newUser('ann'), await w.newUser('zoe'))
    const registered = await w.admin('POST', '/v1/admin/mcp-resources', {
      name: 'files',
      endpoint_url: w.server.url,
    })
    // How many decisions a history makes is chance: it may put everybody out of service early. These are there.
    for (let times = 0; times < CERTAIN; times += 1)
      await Promise.all(people.flatMap((person) => [w.chat(person), w.rpc(person, 'tools/list', {})]))
    const seed = Date.now() % 2 ** 31
    t.comment(`seed ${seed}`)
    const rounds = fc.sample(fc.array(step, { minLength: STEPS, maxLength: STEPS }), {
      numRuns: ROUNDS,
      seed,
    })
    for (const [round, steps] of rounds.entries()) {
      // Three at a time: what is judged is overtaken by what is changed.
      for (let at = 0; at < steps.length; at += 3)
        await Promise.all(
          steps.slice(at, at + 3).map((one) => play(w, people, registered.json.resource_id, one)),
        )
      // Of the last round the outcomes are waited for.
      const dying = round + 1 < ROUNDS ? people.map((person) => w.chat(person).catch(() => null)) : []
      await w.restart(round + 1 < ROUNDS ? 'SIGKILL' : 'SIGTERM')
      await Promise.all(dying)
    }
    const { text } = await w.admin('GET', '/v1/admin/audit/export')
    const file = join(w.data, 'export.ndjson')
    await writeFile(file, text)
    const ours = await sallyport(['verify', file, '--authority'])
    t.match(ours, { code: 0, out: /decisions recomputed \d+, disagree 0/ }, ours.out + ours.err)
    const recomputed = Number(/decisions recomputed (\d+)/.exec(ours.out)?.[1])
    t.ok(recomputed >= 2 * CERTAIN * people.length, `${recomputed} decisions`)
    const database = await databaseUrl(w.data)
    const exported = await sallyport(['export-audit', database])
    t.equal(exported.out, text, 'the command exports the same, names of users too')
    const verified = await sallyport(['verify', database])
    t.equal(verified.code, 0, `the tables are what the rows say: ${verified.out}${verified.err}`)
    const nothing = { principals: new Map(), resources: new Map(), bindings: new Map(), settings: {} }
    const rehearsed = await walkOnThread(
      databaseLocation(database),
      { kind: 'rehearse', changes: nothing, wanted: { ...ALL, principals: null } },
      new AbortController().signal,
    )
    t.match(
      rehearsed,
      { unchanged: rehearsed.decisions, undecidable: [], disagreements: 0 },
      'no change, no difference',
    )
    t.ok(rehearsed.decisions >= recomputed, `${rehearsed.decisions} decisions`)
    if (without('python3')) return t.comment('python3 is not here: the second verifier was not asked')
    const theirs = await promisify(execFile)('python3', [VERIFIER, file, '--authority'])
    t.match(theirs.stdout, /decisions recomputed \d+, disagree 0/)
    t.equal(/decisions recomputed .*/.exec(theirs.stdout)?.[0], /decisions recomputed .*/.exec(ours.out)?.[0])
  },
)
