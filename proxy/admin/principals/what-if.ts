import { X509Certificate } from 'node:crypto'
import { z } from 'zod'
import { OWN_AUTHORITY } from '../../../plugins/call-authority.ts'
import type { Arrival, RefusedBy } from '../../../plugins/plugin.ts'
import { conflict } from '../../../plugins/refusal.ts'
import type { AdminCaller, HypotheticalCall } from '../operation/context.ts'
import type { PrincipalKind } from '../operation/kinds.ts'
import { readOperation } from '../operation/operation.ts'
import { idParams } from '../operation/shapes.ts'
import { principalOf } from './view.ts'

const DIALECT_FIELD = z.enum(['openai', 'anthropic']).exactOptional()

const query = z
  .strictObject({
    model: z.string().min(1).max(256).exactOptional().meta({ description: 'As a call would name it.' }),
    dialect: DIALECT_FIELD.meta({ description: "The API of the call. Default: the first provider's." }),
    tool: z.string().min(1).max(256).exactOptional().meta({ description: '`<server>.<tool>`, or http.get.' }),
  })
  .refine(({ model, tool }) => (model === undefined) !== (tool === undefined), 'name a model or a tool')

const verdict = z.strictObject({
  allowed: z.boolean(),
  refusal: z
    .strictObject({ reason: z.string(), message: z.string() })
    .nullable()
    .meta({ description: 'The answer that the call would get. Null: it would be let through.' }),
  gates: z.array(
    z.strictObject({
      gate: z.string(),
      verdict: z
        .enum(['pass', 'presumed', 'not_asked', 'refuse'])
        .meta({ description: 'presumed: the caller would have to bring it. not_asked: it may count.' }),
    }),
  ),
  demanded: z.array(z.string()).meta({ description: 'The capabilities that the call demands.' }),
  providers: z.array(z.string()).meta({ description: 'Those that a model would be asked of, in order.' }),
})

export type WhatIfVerdict = z.output<typeof verdict>
type GateVerdict = WhatIfVerdict['gates'][number]

/**
 * GET /v1/admin/{agents,users,workloads}/{id}/what-if: whether a call would be let through now. The gates of
 * calls judge it; no row is written, nothing is sent, and it counts for no budget.
 */
export const whatIf = (kind: PrincipalKind) =>
  readOperation({
    name: `whatIf${kind.noun}`,
    summary: `Says, gate by gate, if a call of the ${kind.type} would be let through now. Makes no call.`,
    takes: { params: idParams, query },
    output: verdict,
    reasons: ['not_found', 'conflict'],
    fromStrangers: true,
    run: async (context, { params: { id }, query: asked }, caller) => {
      const { cert_thumbprint: thumbprint, cert_not_after: ends } = await principalOf(context, kind, id)
      if (thumbprint === null)
        throw conflict('No certificate of its own is known here, so only a real call can be judged.')
      const { tool, model = '', dialect } = asked
      const call = tool === undefined ? context.whatIf.model(model, dialect) : context.whatIf.tool
      const body = tool === undefined ? { model } : toolCallOf(tool)
      const peer = { thumbprint, notBefore: 0, notAfter: ends === null ? Infinity : Date.parse(ends) }
      return { value: await judge(call, arrivalOf(call.path, body, peer, caller)) }
    },
  })

const toolCallOf = (name: string) => ({
  jsonrpc: '2.0',
  id: 1,
  method: 'tools/call',
  params: { name, arguments: {} },
})

async function judge({ pipeline, notAsked }: HypotheticalCall, arrival: Arrival): Promise<WhatIfVerdict> {
  let passed: RefusedBy['passed'] = pipeline.names
  const decision = await pipeline.decide(arrival, {
    allowed: () => Promise.resolve(null),
    refused: (_facts, _refusal, by) => {
      passed = by.passed
      return Promise.resolve(null)
    },
  })
  const { demand, providers = [] }: Partial<HypotheticalFacts> = decision.facts
  const verdictOf = (gate: string): GateVerdict['verdict'] => {
    if (gate === 'dpop') return 'presumed'
    return notAsked.includes(gate) ? 'not_asked' : 'pass'
  }
  const gates: GateVerdict[] = passed.map((gate) => ({ gate, verdict: verdictOf(gate) }))
  const shown = gates.filter(({ gate }, at) => gates.findIndex((one) => one.gate === gate) === at)
  const refusal = decision.allowed ? null : decision.refusal
  return {
    allowed: decision.allowed,
    refusal: refusal && { reason: refusal.reason, message: refusal.message },
    gates: decision.allowed
      ? shown
      : [...shown.filter(({ gate }) => gate !== decision.by), { gate: decision.by, verdict: 'refuse' }],
    demanded: [...(demand?.demanded ?? [])],
    providers: [...providers],
  }
}

interface HypotheticalFacts extends Arrival {
  readonly demand: { readonly demanded: readonly string[] }
  readonly providers: readonly string[]
}

/** Makes the arrival of a call that nobody makes. A certificate is known by its thumbprint alone. */
function arrivalOf(
  path: string,
  value: object,
  peer: { readonly thumbprint: string; readonly notBefore: number; readonly notAfter: number },
  { id, at, hangup, remoteAddress }: AdminCaller,
): Arrival {
  const body = Buffer.from(JSON.stringify(value))
  return {
    ...{ id, at, path, hangup, remoteAddress, method: 'POST', query: '', params: {}, localUid: null },
    headers: { 'content-type': 'application/json' },
    peer: { ...peer, certificate: NO_CERTIFICATE },
    readBody: () => body,
    held: UNCOUNTED,
    answer: {},
    authority: OWN_AUTHORITY,
  }
}

// Read only of one that is pinned nowhere, and this one is.
const NO_CERTIFICATE: X509Certificate = Object.create(X509Certificate.prototype)

const UNCOUNTED: Arrival['held'] = {
  setOwner: () => {},
  tryReserve: () => true,
  reserveAnswerInTurn: () => undefined,
  reserveReply: () => undefined,
}
