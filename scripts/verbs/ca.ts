import { createPrivateKey } from 'node:crypto'
import { readFile } from 'node:fs/promises'
import { GRACE_OPTION, graceIn } from '../admin/arguments.ts'
import { ROTATION_VERBS } from '../admin/ca-rotation.ts'
import { type AdminCall, expectStatus } from '../admin/call.ts'
import { DOOR_NOTES } from '../admin/door.ts'
import { type PrintLines, subcommandOf, verbGroup } from '../admin/subcommand.ts'
import { certificateRequest } from '../client/renewal/certificate-request.ts'
import { JSON_OPTION } from '../command.ts'
import { alignColumns, jsonLines } from '../print.ts'

const CAS = '/v1/admin/ca'
const AGENTS = '/v1/admin/agents'

/** A block of a given text that vouches for nobody. */
interface LeftOutBlock {
  readonly line: number
  readonly subject: string | null
  readonly message: string
}

const leftOut = (blocks: readonly LeftOutBlock[]): readonly string[] =>
  blocks.map(({ line, subject, message }) => `left out line ${line}, ${subject ?? '?'}: ${message}`)

/** A CA as the admin API lists it (docs/protocol.md#cas). */
interface ListedCa {
  readonly passed_over?: readonly LeftOutBlock[]
  readonly digest: string
  readonly kind: string
  readonly subject: string
  readonly not_after: string
  readonly agents: number
  readonly agents_alone: number
}

const list = subcommandOf({
  takes: '',
  about: 'every attached CA, how many agents rely on it, and how many on it alone',
  options: JSON_OPTION,
  run: async ({ call, say, values: { json } }) => {
    const all = await attachedCas(call)
    if (json) return say(...jsonLines(all))
    if (all.length === 0) return say('no CA is attached')
    const rows = all.map((ca) => [
      ...[ca.digest, ca.kind, ca.not_after.slice(0, 10)],
      ...[String(ca.agents), String(ca.agents_alone), ca.subject],
    ])
    say(...alignColumns([['DIGEST', 'KIND', 'ENDS', 'AGENTS', 'ALONE', 'SUBJECT'], ...rows]))
  },
})

const ATTACH = 'give the file and its kind: sallyport ca attach FILE --kind spiffe'

const attach = subcommandOf({
  takes: 'FILE',
  about: 'attach the CAs of a PEM file: they vouch for nobody who is enrolled already',
  misuse: ATTACH,
  options: {
    kind: { type: 'string', value: 'KIND', description: 'spiffe, or organisation' },
  },
  check: ({ kind }) => {
    if (kind === undefined) throw new Error(ATTACH)
  },
  run: async ({ call, say, values: { kind }, args: [file] }) => {
    const body = { ca_pem: await readFile(file, 'utf8'), kind }
    const made = expectStatus<readonly ListedCa[]>(await call('POST', `${CAS}/attach`, body), 201)
    say(...made.map(({ digest, subject }) => `attached ${digest} ${subject}`))
    say(...leftOut(made.flatMap(({ passed_over: blocks = [] }) => blocks)))
  },
})

const detach = subcommandOf({
  takes: 'DIGEST',
  about: 'stop trusting a CA',
  misuse: 'name the CA: sallyport ca detach DIGEST',
  options: {
    'lock-out': {
      type: 'boolean',
      default: false,
      description: 'even if agents rely on it alone: nobody can call as one of them from then on',
    },
  },
  run: async ({ call, say, values: { 'lock-out': locksOut }, args: [prefix] }) => {
    const { digest } = await caOf(call, prefix)
    expectStatus(await call('DELETE', `${CAS}/${digest}${locksOut ? '?lock_out=true' : ''}`), 204)
    say(`${digest} is detached`)
  },
})

const trust = subcommandOf({
  takes: 'DIGEST AGENT…',
  about: `let a CA vouch for agents by their ids: an SVID with their SPIFFE id from that CA is that agent;
or with --agents-of for all agents of another CA, which can then be detached`,
  options: {
    'agents-of': { type: 'string', value: 'DIGEST', description: 'all agents that this CA vouches for' },
  },
  check: ({ 'agents-of': as }, [prefix, ...ids]) => {
    if (!prefix || (as === undefined) === (ids.length === 0))
      throw new Error('name the agents: sallyport ca trust DIGEST AGENT…, or --agents-of DIGEST')
  },
  run: async ({ call, say, values: { 'agents-of': as }, args: [prefix, ...ids] }) => {
    const { digest } = await caOf(call, prefix)
    if (as !== undefined) return trustAs(call, say, digest, (await caOf(call, as)).digest)
    for (const id of ids) {
      expectStatus(await call('POST', `${agentPath(id)}/trusted-cas`, { digest }), 200)
      say(`${digest} vouches for ${id}`)
    }
  },
})

async function trustAs(call: AdminCall, say: PrintLines, digest: string, as: string): Promise<void> {
  const { agents } = expectStatus(await call('POST', `${AGENTS}/trusted-cas`, { digest, as }), 200)
  say(`${digest} vouches for ${String(agents)} more`)
}

const distrust = subcommandOf({
  takes: 'DIGEST AGENT…',
  about: 'stop it from vouching for them, from their next call on',
  misuse: 'name the agents: sallyport ca distrust DIGEST AGENT…',
  run: async ({ call, say, args: [prefix, ...ids] }) => {
    const { digest } = await caOf(call, prefix)
    for (const id of ids) {
      expectStatus(await call('DELETE', `${agentPath(id)}/trusted-cas/${digest}`), 204)
      say(`${digest} does not vouch for ${id} any more`)
    }
  },
})

const bundle = subcommandOf({
  takes: 'FILE AGENT…',
  about: `replace the trust bundle of agents by their ids with the CAs of a PEM file: an SVID with their
SPIFFE id from one of these is that agent`,
  misuse: 'name the agents: sallyport ca bundle FILE AGENT…',
  options: GRACE_OPTION,
  check: graceIn,
  run: async ({ call, say, args: [file, ...ids], checked: hours }) => {
    const pem = await readFile(file, 'utf8')
    const body = { trust_bundle_pem: pem, ...hours }
    for (const id of ids) {
      const answer = await call('PUT', `${agentPath(id)}/trust-bundle`, body)
      const { passed_over: odd = [] } = expectStatus(answer, 200)
      say(`the trust bundle of ${id} is replaced`, ...leftOut(odd as readonly LeftOutBlock[]))
    }
  },
})

const follow = subcommandOf({
  takes: 'NAME AGENT…',
  about: `let the trust bundle of agents follow the one of this NAME in 10-pin.yaml, which is read again by
itself`,
  misuse: 'name the agents: sallyport ca follow NAME AGENT…',
  options: GRACE_OPTION,
  check: graceIn,
  run: async ({ call, say, args: [name, ...ids], checked: hours }) => {
    for (const id of ids) {
      expectStatus(await call('PUT', `${agentPath(id)}/trust-bundle`, { follow: name, ...hours }), 200)
      say(`${id} follows ${name}`)
    }
  },
})

const leaf = subcommandOf({
  takes: 'CERT KEY AGENT',
  about: `let an agent be known by the certificate that its own CA (byoca) has renewed; KEY stays on this
machine`,
  misuse: 'name the agent: sallyport ca leaf CERT KEY AGENT',
  options: GRACE_OPTION,
  check: graceIn,
  run: async ({ call, say, args: [cert, key, id], checked: hours }) => {
    const csr = certificateRequest(createPrivateKey(await readFile(key, 'utf8')))
    const body = { cert_pem: await readFile(cert, 'utf8'), csr_pem: csr, ...hours }
    const made = expectStatus(await call('PUT', `${agentPath(id)}/certificate`, body), 200)
    say(`${id} is known by ${String(made.cert_thumbprint)}`)
  },
})

const agentPath = (id: string): string => `${AGENTS}/${encodeURIComponent(id)}`

const attachedCas = async (call: AdminCall): Promise<readonly ListedCa[]> =>
  expectStatus(await call('GET', CAS), 200)

/** Finds the one attached CA whose digest begins so. Throws one sentence. */
async function caOf(call: AdminCall, prefix: string): Promise<ListedCa> {
  const [found, ...more] = (await attachedCas(call)).filter(({ digest }) => digest.startsWith(prefix))
  if (found && more.length === 0) return found
  throw new Error(`${found ? 'more than one' : 'no'} attached CA has a digest that begins with ${prefix}`)
}

export const verb = verbGroup({
  name: 'ca',
  about: `Shows which CAs are trusted, and which of them vouch for whom; replaces the gateway's own CA, in the steps prepare, issue and
finish. ${DOOR_NOTES}`,
  verbs: { list, attach, trust, distrust, bundle, follow, leaf, detach, ...ROTATION_VERBS },
  notes:
    'DIGEST: the beginning of one is enough. A certificate of this gateway’s own CA: sallyport ca-export.',
})
