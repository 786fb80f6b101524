import { proofSigner } from '../../../scripts/client/signing/proof.ts'
import type { Identity, ProvenIdentity } from '../../bench/ground/ground.ts'
import { mcpRequest } from '../../bench/load/mcp-messages.ts'
import { PATH, requestBody } from '../../bench/load/messages.ts'
import { type Answer, asker, type Question, reasonOf } from './ask.ts'

/** One kind of honest call. */
export interface Kind {
  readonly name: string
  /** Its part of all calls. The parts of all kinds make 1. */
  readonly share: number
  /** True where it is no call of an agent: no decision is recorded for it. */
  readonly isAdmin?: boolean
  /** Calls once, and resolves with the answer. Throws a sentence where it is not the right one. */
  readonly call: () => Promise<Answer>
}

export interface Honest {
  readonly port: number
  readonly json: Identity
  readonly streams: Identity
  readonly tools: Identity
  readonly proven: ProvenIdentity
}

const CHAT: Question = { method: 'POST', path: PATH, body: requestBody('json') }
const STREAM: Question = { method: 'POST', path: PATH, body: requestBody('paced') }

/** Lists the kinds of honest calls that need nobody else: chats, streams, tools of both eras, proofs, new connections. */
export function kindsOf({ port, json, streams, tools, proven }: Honest): readonly Kind[] {
  const chats = asker(port, json)
  const once = asker(port, json, false)
  const streaming = asker(port, streams)
  const calling = asker(port, tools)
  return [
    { name: 'json', share: 0.4, call: async () => right(await chats(CHAT), '"chat.completion"') },
    { name: 'new connection', share: 0.05, call: async () => right(await once(CHAT), '"chat.completion"') },
    { name: 'stream', share: 0.1, call: async () => right(await streaming(STREAM), 'data: [DONE]') },
    {
      name: 'tool, legacy',
      share: 0.15,
      call: async () => right(await calling(toolCall('legacy')), '"isError":false'),
    },
    {
      name: 'tool, modern',
      share: 0.1,
      call: async () => right(await calling(toolCall('modern')), '"isError":false'),
    },
    { name: 'DPoP', share: 0.15, call: provenCall(port, proven) },
  ]
}

function toolCall(era: 'legacy' | 'modern'): Question {
  const { path, headers, body } = mcpRequest({ era, server: era, progress: false }, false)
  const named = headers.map((line) => [line.slice(0, line.indexOf(':')), line.slice(line.indexOf(':') + 2)])
  return { method: 'POST', path, body, headers: Object.fromEntries(named) }
}

/** Signs each call; a nonce that has become old is taken from the refusal, as clients do. */
function provenCall(port: number, identity: ProvenIdentity): () => Promise<Answer> {
  const ask = asker(port, identity)
  const sign = proofSigner(identity.dpopKey)
  const target = { method: 'POST', url: `https://localhost:${port}${PATH}`, accessToken: null }
  let nonce: string | undefined
  const proven = async (): Promise<Answer> => {
    const answer = await ask({ ...CHAT, headers: { dpop: sign({ ...target, nonce, at: Date.now() }) } })
    const given = answer.headers['dpop-nonce']
    if (typeof given === 'string') nonce = given
    return answer
  }
  return async () => {
    const answer = await proven()
    const stale = answer.status === 401 && answer.body.includes('use_dpop_nonce')
    return right(stale ? await proven() : answer, '"chat.completion"')
  }
}

/** Throws where the answer is not 200 with this text in it. */
function right(answer: Answer, wanted: string): Answer {
  if (answer.status === 200 && answer.body.includes(wanted)) return answer
  throw new Error(`${answer.status} ${reasonOf(answer)}`)
}
