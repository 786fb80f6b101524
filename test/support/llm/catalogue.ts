import { Writable } from 'node:stream'
import { setImmediate as nextTurn } from 'node:timers/promises'
import { pino } from 'pino'
import type { Test } from 'tap'
import { ModelCatalogue } from '../../../proxy/llm/catalogue.ts'
import { modelHandlers } from '../../../proxy/llm/models.ts'
import { type LlmUpstream, openUpstream } from '../../../proxy/llm/upstream/client.ts'
import { refreshModels } from '../../../proxy/tasks/refresh-models.ts'
import type { Json } from '../gateway.ts'
import { arrival, options, receive, servicesWith } from './facts.ts'

type File = Parameters<typeof options>

/** The task, the catalogue that it fills and the handler in front, with a clock that a test moves. */
export interface CatalogueStage {
  /** Each reading that the task has begun: the provider's name. */
  readonly begun: readonly string[]
  readonly log: readonly Json[]
  /** One round, `afterMs` later. Resolves when every reading has its head, or has failed. */
  readonly round: (afterMs?: number) => Promise<void>
  /** Puts another configuration in force. */
  readonly reload: (...file: File) => void
  /** Asks for the list as a caller; the answer, parsed. */
  readonly ask: (headers?: Record<string, string>, query?: string) => Promise<Json>
  /** Asks for one model by the segments of its path; the answer, parsed. */
  readonly get: (params: Record<string, string>, headers?: Record<string, string>) => Promise<Json>
  readonly ids: () => Promise<readonly string[]>
  readonly stop: () => Promise<void>
}

export function catalogueStage(t: Test, ...file: File): CatalogueStage {
  const { upstream, begun, heads } = recorded(openUpstream())
  const log: Json[] = []
  const logTo = new Writable({
    write(line: Buffer, _encoding, done) {
      log.push(JSON.parse(line.toString()))
      done()
    },
  })
  const catalogue = new ModelCatalogue()
  let at = 0
  let inForce = options(...file)
  let models = modelHandlers(inForce, catalogue)
  const { run, stop } = refreshModels({
    catalogue,
    upstream,
    providerKeys: servicesWith(upstream).providerKeys,
    providers: () => inForce.providers,
    clock: () => at,
    log: pino(logTo),
  })
  t.teardown(async () => {
    await stop()
    upstream.close()
  })
  const ask: CatalogueStage['ask'] = async (headers = {}, query = '') => {
    const reply = await models.list({ ...arrival({ path: '/v1/models', headers }), query })
    if (reply.status !== 200) throw new Error(`the list was answered with ${reply.status}`)
    return JSON.parse((await receive(reply)).text)
  }
  const get: CatalogueStage['get'] = async (params, headers = {}) => {
    const reply = await models.get({ ...arrival({ headers }), params })
    return JSON.parse((await receive(reply)).text)
  }
  return {
    begun,
    log,
    ask,
    get,
    ids: async () => (await ask()).data.map(({ id }: Json) => id),
    reload: (...next) => {
      inForce = options(...next)
      models = modelHandlers(inForce, catalogue)
    },
    round: async (afterMs = 0) => {
      at += afterMs
      await run()
      await Promise.allSettled(heads)
      await nextTurn()
    },
    stop,
  }
}

/** The real client, which notes what was asked of it. */
function recorded(real: LlmUpstream) {
  const begun: string[] = []
  const heads: Promise<unknown>[] = []
  const upstream: LlmUpstream = {
    call: (request) => {
      if (request.permit.kind === 'catalogue') begun.push(request.permit.provider)
      const head = real.call(request)
      heads.push(head)
      return head
    },
    close: real.close,
  }
  return { upstream, begun, heads }
}
