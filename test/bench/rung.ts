// One rung of the ladder: the gateway's own plugins on its own listener, up to a step, with a handler that
// answers from memory. Usage: node rung.ts pin|capability|audit, configured like the gateway itself.
import '../../proxy/boot/v8-flags.ts'
import type { DecisionFacts } from '../../plugins/audit/audit.ts'
import { type Arrival, Pipeline, type Recorder } from '../../plugins/plugin.ts'
import { monotonicClock } from '../../plugins/secrets/throttle.ts'
import { changePipeline } from '../../proxy/admin/pipeline.ts'
import { openDataDirectory } from '../../proxy/boot/data-directory.ts'
import { readSettings } from '../../proxy/boot/settings.ts'
import { router } from '../../proxy/http/arrival.ts'
import { openListeners } from '../../proxy/http/listeners.ts'
import type { Reply } from '../../proxy/http/reply.ts'
import { type BareRoute, gatedRoute, onSurface, openRoute } from '../../proxy/http/route.ts'
import { createRequestListener } from '../../proxy/http/serve.ts'
import { DEFAULT_TIMERS } from '../../proxy/http/server.ts'
import { LLM_ENDPOINTS } from '../../proxy/llm/dialects/registry.ts'
import { pipelines } from '../../proxy/pipelines.ts'
import { tlsMaterial } from '../../proxy/tasks/follow-authority.ts'
import { createLogs } from '../../proxy/telemetry/log.ts'
import { loadConfiguration } from '../../proxy/wiring/configuration.ts'
import { createHandlers } from '../../proxy/wiring/handlers.ts'
import { openServices } from '../../proxy/wiring/services.ts'
import { NO_WHAT_IF } from '../support/plugins/operators.ts'
import { announce } from './ground/say-ready.ts'
import { COMPLETION, PATH } from './load/messages.ts'

const BODY_LIMIT = 1024 * 1024
const REPLY: Reply = {
  status: 200,
  headers: { 'content-type': 'application/json' },
  body: Buffer.from(COMPLETION),
}

const UNRECORDED: Recorder<Arrival & DecisionFacts> = {
  allowed: () => Promise.resolve(null),
  refused: () => Promise.resolve(null),
}

const settings = readSettings(process.env, process.cwd())
const configuration = await loadConfiguration(settings.pluginsDir, process.env)
const dataDirectory = await openDataDirectory(settings, configuration.audit.queue_limit, Date.now())
const clocks = { clock: Date.now, monotonic: monotonicClock }
const services = await openServices(dataDirectory, createLogs(settings.logLevel), clocks, {
  env: process.env,
})
const p = pipelines({ configuration, inForce: () => configuration, ...services.plugins, mcp: services.mcp })
const routes = router(onSurface('llm', [routeOf(process.argv[2] ?? '')]))
const { drain, metrics, logs, outcomes, upstream } = services
const handle = createRequestListener({
  mounted: { router: routes },
  ...logs,
  metrics,
  writeStallMs: DEFAULT_TIMERS.writeStallMs,
  clock: Date.now,
  drain,
  budget: services.budget,
  telemetry: services.telemetry,
  moves: dataDirectory.database.authority,
})
const tls = await tlsMaterial(dataDirectory, Date.now())
const listeners = await openListeners(settings, tls, DEFAULT_TIMERS, {
  runtime: handle,
  admin: handle,
  people: handle,
  peopleTls: null,
  connections: services.descriptors.connectionLimits,
  direct: true,
  onHandshakeFault: () => {},
})
// From them the dpop plugin knows the URLs that proofs may be for.
services.listeners.current = listeners
announce(listeners.url, async () => {
  const closed = listeners.close()
  listeners.destroy()
  await closed
  await drain.finish(0)
  await outcomes.flushed()
  upstream.close()
  await dataDirectory.close()
})

function routeOf(rung: string): BareRoute {
  switch (rung) {
    case 'pin':
      return pinned()
    case 'capability':
      return gate(UNRECORDED)
    case 'audit':
      // As the gateway itself records: a row before the work, a row after it.
      return gate(
        createHandlers(services, configuration, { change: changePipeline, whatIf: NO_WHAT_IF }).recorders
          .calls,
      )
    default:
      throw new Error('usage: node rung.ts pin|capability|audit')
  }
}

/** Asks for the principal alone, and reads the body, as every rung does. */
function pinned(): BareRoute {
  return openRoute('POST', PATH, Pipeline.start().pass(services.plugins.pin), async (facts) => {
    await facts.readBody(BODY_LIMIT, facts)
    return REPLY
  })
}

/** Asks everything that the gateway asks of a chat call, in its order. */
function gate(recorder: Recorder<Arrival & DecisionFacts>): BareRoute {
  const endpoint = LLM_ENDPOINTS.find(({ path }) => path === PATH)
  if (!endpoint) throw new Error(`the gateway has no route ${PATH}`)
  const route = { pipeline: p.llm.call(endpoint), recorder }
  return gatedRoute('POST', PATH, route, () => REPLY)
}
