import { refuseUnsafeRuntime } from '../../proxy/boot/runtime-check.ts'
import { verbOf } from '../../scripts/command.ts'
import { ATTACK_NAMES, type AttackName } from './attacks/attacks.ts'

const verb = verbOf({
  name: 'node test/siege/main.ts',
  usage: ['[options]'],
  make: 'make siege',
  about: `Attacks a gateway of its own for half an hour, by turns and two attacks at a time, while honest agents and an operator use it at
a constant rate. Everything runs on 127.0.0.0/8 in a directory of its own, which is removed at the end; rates, connections and
sizes of every attack are bounded. It needs Linux, two cores, 4 GiB of memory and some GiB of disk.
docs/performance.md says how to read what it prints.`,
  options: {
    minutes: { type: 'string', value: 'N', default: '30', description: 'how long' },
    seconds: { type: 'string', value: 'N', description: 'instead of minutes' },
    rate: {
      type: 'string',
      value: 'N',
      default: '120',
      description: 'honest calls per second, of all kinds',
    },
    only: {
      type: 'string',
      value: 'A,…',
      default: '',
      description: `only these attacks: ${ATTACK_NAMES.slice(0, 9).join(', ')},\n${ATTACK_NAMES.slice(9).join(', ')}`,
    },
    p99: {
      type: 'string',
      value: 'MS',
      default: '250',
      description: 'the bound of the 99th percentile of each kind of honest call',
    },
    seed: { type: 'string', value: 'N', description: 'of the order and the choices (default: the time)' },
    dir: {
      type: 'string',
      value: 'DIR',
      description: "where the run's directory is made (default the system's)",
    },
    json: { type: 'string', value: 'FILE', description: 'also write everything as JSON to FILE' },
  },
  notes:
    'Exit code: 0 where honest callers were served, memory was flat and the ledger is whole; 1 where not.',
  run: async (values) => {
    refuseUnsafeRuntime(process)
    const minutes = whole('--minutes', values.minutes)
    const { siege } = await import('./siege.ts')
    const held = await siege({
      seconds: values.seconds === undefined ? 60 * minutes : whole('--seconds', values.seconds),
      perSecond: whole('--rate', values.rate),
      only: values.only === '' ? [] : values.only.split(',').map(attack),
      p99Ms: whole('--p99', values.p99),
      seed: values.seed === undefined ? Date.now() % 100_000 : whole('--seed', values.seed),
      parent: values.dir,
      jsonFile: values.json,
    })
    return held ? 0 : 1
  },
})

process.exitCode = await verb.run(process.argv.slice(2))

function whole(name: string, text: string): number {
  const value = /^\d{1,5}$/.test(text) ? Number(text) : 0
  if (value > 0) return value
  throw new Error(`${name} must be a whole number from 1 to 99999, got ${JSON.stringify(text)}`)
}

function attack(text: string): AttackName {
  const found = ATTACK_NAMES.find((name) => name === text)
  if (found) return found
  throw new Error(`--only must be of ${ATTACK_NAMES.join(', ')}, got ${JSON.stringify(text)}`)
}
