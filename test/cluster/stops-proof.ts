import { parseArgs } from 'node:util'
import { proveStops } from '../support/cluster/stops/proof.ts'
import { skipWithoutHaproxy } from '../support/haproxy.ts'

const { values } = parseArgs({
  options: {
    minutes: { type: 'string', default: '10' },
    callers: { type: 'string', default: '200' },
    rate: { type: 'string', default: '60' },
    seed: { type: 'string', default: String(Date.now() % 100_000) },
    help: { type: 'boolean', default: false },
  },
})

const HELP = `usage: make stops-proof [ARGS="--minutes 10 --callers 200 --rate 60 --seed N"]

Three gateways on a PostgreSQL of their own, used by callers at a constant rate of short calls per second, a quarter of whom
hold a call, while operators begin and end stops of random scopes at any of the gateways. At the end the ledger alone is
asked: no call is allowed behind a stop of its scope, and calls under way were cut within a second at the 99th percentile.
Exit code: 0 where that held; 1 where not.
`

if (values.help) process.stdout.write(HELP)
else if (skipWithoutHaproxy) throw new Error('make stops-proof needs HAProxy: apt-get install haproxy')
else {
  const held = await proveStops({
    minutes: whole('--minutes', values.minutes),
    callers: whole('--callers', values.callers),
    perSecond: whole('--rate', values.rate),
    seed: whole('--seed', values.seed),
  })
  process.exitCode = held ? 0 : 1
}

function whole(name: string, text: string): number {
  if (/^[1-9]\d{0,4}$/.test(text)) return Number(text)
  throw new Error(`${name} must be a whole number from 1 to 99999, got ${JSON.stringify(text)}`)
}
