// One rung of the ladder: the gateway's own plugins on its own server, up to a step, with a handler that answers from
// memory. Usage: node rung.ts pin|capability|audit, configured like the gateway itself.
import { pinnedPrincipal } from '../../db/pins.ts'
import { audit, outcomeEntry, type Recorded } from '../../plugins/audit.ts'
import { capability, demand } from '../../plugins/capability.ts'
import { jsonBody } from '../../plugins/json-body.ts'
import { Outcomes } from '../../plugins/outcomes.ts'
import { pin } from '../../plugins/pin.ts'
import { type Arrival, Pipeline, type Plugin, type Recorder } from '../../plugins/plugin.ts'
import { loadConfiguration } from '../../proxy/configuration.ts'
import { Drain } from '../../proxy/drain.ts'
import { openHouse } from '../../proxy/house.ts'
import { llmCall } from '../../proxy/llm/call.ts'
import { ENDPOINTS } from '../../proxy/llm/endpoints.ts'
import { createLog } from '../../proxy/log.ts'
import { createMetrics } from '../../proxy/metrics.ts'
import { outcomeOf } from '../../proxy/outcome.ts'
import type { Reply } from '../../proxy/reply.ts'
import { gated, open, type Route, type Settle } from '../../proxy/route.ts'
import { router } from '../../proxy/router.ts'
import { serve } from '../../proxy/serve.ts'
import { createTlsServer, TIMERS } from '../../proxy/server.ts'
import { readSettings } from '../../proxy/settings.ts'
import { tlsMaterial } from '../../proxy/tasks/renew-server-certificate.ts'
import { watched } from '../../proxy/watched-ledger.ts'
import { COMPLETION, PATH } from './messages.ts'
import { sayReady } from './say-ready.ts'

const BODY_LIMIT = 1024 * 1024
const REPLY: Reply = {
  status: 200,
  headers: { 'content-type': 'application/json' },
  body: Buffer.from(COMPLETION),
}

const UNRECORDED: Recorder<Arrival & Recorded> = {
  allowed: () => Promise.resolve(null),
  refused: () => Promise.resolve(null),
}

// In the place of plugins/dpop.ts, which gives the same for a caller without a proof, and needs half the gateway for others.
const NO_PROOF = { proof: null, token: null }
const WITHOUT_PROOF: Plugin<object, typeof NO_PROOF> = {
  name: 'without-proof',
  needs: [],
  gives: Object.keys(NO_PROOF),
  admit: () => NO_PROOF,
}

const settings = readSettings(process.env, process.cwd())
const configuration = await loadConfiguration(settings.pluginsDir, process.env)
const house = await openHouse(settings, configuration.audit.queue_limit, Date.now())
const log = createLog(settings.logLevel)
const ledger = watched(house.ledger)
const outcomes = new Outcomes(ledger, (error) => log.error({ err: error }, 'an outcome row was lost'))
const metrics = createMetrics({ waiting: () => ledger.waiting, owed: () => outcomes.owed })
const drain = new Drain()
const routes = router([routeOf(process.argv[2] ?? '')])
const handle = serve({
  router: () => routes,
  log,
  metrics,
  writeStallMs: TIMERS.writeStallMs,
  clock: Date.now,
  draining: () => drain.draining,
  cutOff: drain.cutOff,
  track: drain.track,
})
const server = createTlsServer(await tlsMaterial(house, Date.now()), TIMERS, handle)
sayReady(server, async () => {
  server.close()
  server.closeAllConnections()
  await drain.finish(0)
  await outcomes.flushed()
  await house.close()
})

function routeOf(rung: string): Route {
  switch (rung) {
    case 'pin':
      return pinned()
    case 'capability':
      return gate({ recorder: UNRECORDED, settle: () => {} })
    case 'audit':
      return gate(recorded())
    default:
      throw new Error('usage: node rung.ts pin|capability|audit')
  }
}

/** Who it is, and the body read, so that every rung reads it. */
function pinned(): Route {
  return open('POST', PATH, Pipeline.start().pass(pin(pinnedPrincipal(house.database))), async (facts) => {
    await facts.readBody(BODY_LIMIT)
    return REPLY
  })
}

interface Recording {
  readonly recorder: Recorder<Arrival & Recorded>
  readonly settle: Settle<Arrival & Recorded>
}

/** What the gateway asks of a chat call that brings no DPoP proof, in its order. */
function gate(recording: Recording): Route {
  const endpoint = ENDPOINTS.find(({ path }) => path === PATH)
  if (!endpoint) throw new Error(`the gateway has no route ${PATH}`)
  const pipeline = Pipeline.start()
    .pass(demand('egress_llm_chat', 'llm.chat'))
    .pass(pin(pinnedPrincipal(house.database)))
    .pass(WITHOUT_PROOF)
    .pass(jsonBody({ limit: BODY_LIMIT }))
    .pass(llmCall(endpoint))
    .pass(capability)
  return gated('POST', PATH, { pipeline, ...recording }, () => REPLY)
}

/** As the gateway itself records: a row before the work, a row after it. */
function recorded(): Recording {
  const { digest } = configuration
  const source = { ledger, database: house.database, configDigest: digest, countStranger: () => {} }
  return {
    recorder: audit(source),
    settle: (facts, ended) => outcomes.settle(outcomeEntry(facts, outcomeOf(ended, facts.at), digest)),
  }
}
