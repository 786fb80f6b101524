import { parseArgs } from 'node:util'
import { soak } from '../support/cluster/soak/soak.ts'
import { skipWithoutHaproxy } from '../support/haproxy.ts'

const { values } = parseArgs({
  options: {
    minutes: { type: 'string', default: '20' },
    rate: { type: 'string', default: '60' },
    rounds: { type: 'string', default: '1000' },
    seed: { type: 'string', default: String(Date.now() % 100_000) },
    help: { type: 'boolean', default: false },
  },
})

const HELP = `usage: make soak [ARGS="--minutes 20 --rate 60 --rounds 1000 --seed N"]

Three gateways on a PostgreSQL of their own behind HAProxy, used at a constant rate (calls per second) while something
goes wrong every few seconds: the database, the ways to it, a gateway, a caller, the provider. At the end the whole ledger
is held to what callers and provider saw. --rounds: how often 100 copies of one proof are sent, at most, over the whole run.
Exit code: 0 where nothing was lost, replayed or let in, service came back each time, and memory was flat; 1 where not.
`

if (values.help) process.stdout.write(HELP)
else if (skipWithoutHaproxy) throw new Error('make soak needs HAProxy: apt-get install haproxy')
else {
  const held = await soak({
    minutes: whole('--minutes', values.minutes),
    perSecond: whole('--rate', values.rate),
    rounds: whole('--rounds', values.rounds),
    seed: whole('--seed', values.seed),
  })
  process.exitCode = held ? 0 : 1
}

function whole(name: string, text: string): number {
  if (/^\d{1,5}$/.test(text)) return Number(text)
  throw new Error(`${name} must be a whole number up to 99999, got ${JSON.stringify(text)}`)
}
