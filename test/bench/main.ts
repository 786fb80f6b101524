import { refuseUnsafeRuntime } from '../../proxy/boot/runtime-check.ts'
import { verbOf } from '../../scripts/command.ts'

const verb = verbOf({
  name: 'node test/bench/main.ts',
  usage: ['[options]'],
  make: 'make bench',
  about: `Measures the gateway on one core, step by step, beside bare node:https, bare http-proxy-3 and what of others is installed;
with and without a fresh DPoP proof on each request, beside bare ES256 verification; tools/call of MCP servers of both eras,
beside the same servers asked directly; and what it costs to refuse junk.
Everything runs on 127.0.0.1 in a directory of its own, which is removed at the end. docs/performance.md says how to
read the figures. Other work on the machine spoils them.`,
  options: {
    quick: {
      type: 'boolean',
      default: false,
      description: '2 s per point instead of 10: to see that it works',
    },
    short: {
      type: 'boolean',
      default: false,
      description: '2 s per point, and only those that the targets are judged by',
    },
    seconds: {
      type: 'string',
      value: 'N',
      description: 'so many seconds per point, after a fifth of that (at least 1 s) to warm up',
    },
    rounds: {
      type: 'string',
      value: 'N',
      default: '1',
      description: 'measure everything N times and show the median of each point',
    },
    only: {
      type: 'string',
      value: 'TEXT',
      default: '',
      description:
        'only points whose name holds TEXT, e.g. gateway/, "json c=64", DPoP, streams/, mcp, ledger, limits, rehearsal, dashboard, proofs, against/ or cost/',
    },
    against: {
      type: 'string',
      value: 'DIR',
      description:
        "also measure the gateway of the checkout DIR, with its node_modules, in turn with this one's",
    },
    peers: {
      type: 'string',
      value: 'DIR',
      description:
        'also measure what is installed in DIR: litellm, portkey, contextforge (docs/performance.md)',
    },
    idle: {
      type: 'string',
      value: 'N',
      default: '0',
      description: 'also hold N idle connections, such as 10000; takes a minute',
    },
    'start-rows': {
      type: 'string',
      value: 'N',
      default: '0',
      description: 'also start with N rows in the ledger, such as 5000000; takes minutes, and 2.5 KB a row',
    },
    rehearse: {
      type: 'string',
      value: 'N',
      default: '0',
      description: 'also rehearse over N decisions, such as 1000000; takes minutes, and 3 KB a decision',
    },
    browse: {
      type: 'string',
      value: 'N',
      default: '0',
      description:
        'also open the dashboard over N decisions and 10,000 agents, such as 500000; takes minutes, and 3 KB a decision',
    },
    seal: {
      type: 'string',
      value: 'N',
      default: '0',
      description: 'also seal N rows, such as 1000000, beside calls; takes minutes, and 2 KB a row',
    },
    postgres: {
      type: 'string',
      value: 'URL',
      description:
        'also measure the ledger, limits and rehearsals on PostgreSQL, in the empty database URL; two minutes',
    },
    dir: {
      type: 'string',
      value: 'DIR',
      description:
        "where the run's directory is made (default the system's); its disk is what the ledger waits for",
    },
    profile: {
      type: 'string',
      value: 'DIR',
      description:
        'write a processor profile of each measured Node process into DIR; the figures suffer by it',
    },
    json: { type: 'string', value: 'FILE', description: 'also write everything as JSON to FILE' },
  },
  run: async (values) => {
    refuseUnsafeRuntime(process)
    const seconds = whole('--seconds', values.seconds ?? (values.quick || values.short ? '2' : '10'))
    const { bench } = await import('./bench.ts')
    await bench({
      seconds,
      warmupS: Math.max(1, seconds / 5),
      rounds: whole('--rounds', values.rounds),
      only: values.only,
      short: values.short,
      idle: whole('--idle', values.idle, 0),
      rehearse: whole('--rehearse', values.rehearse, 0),
      browse: whole('--browse', values.browse, 0),
      seal: whole('--seal', values.seal, 0),
      startRows: whole('--start-rows', values['start-rows'], 0),
      against: values.against,
      peers: values.peers,
      postgres: values.postgres,
      parent: values.dir,
      profileDir: values.profile,
      jsonFile: values.json,
    })
  },
})

process.exitCode = await verb.run(process.argv.slice(2))

function whole(name: string, text: string, least = 1): number {
  const value = /^\d{1,8}$/.test(text) ? Number(text) : -1
  if (value < least)
    throw new Error(`${name} must be a whole number from ${least} to 99999999, got ${JSON.stringify(text)}`)
  return value
}
