import { JSON_OPTION } from '../command.ts'
import { jsonLines } from '../print.ts'
import { type AdminCall, expectStatus } from './call.ts'
import { type PrintLines, subcommandOf } from './subcommand.ts'

const ROTATION = '/v1/admin/ca/rotation'

interface OwnCa {
  readonly root_sha256: string
  readonly intermediate_sha256: string
  readonly intermediate_not_after: string
}

/** The replacement of the CA as the admin API shows it (docs/protocol.md#own-ca). */
interface ShownRotation {
  readonly phase: 'none' | 'prepared' | 'issuing'
  readonly issuing: OwnCa
  readonly other: OwnCa | null
  readonly holders: {
    readonly active: number
    readonly in_grace: number
    readonly inactive: number
    readonly principals: readonly { readonly principal_id: string }[]
  } | null
  readonly rehearsal?: { readonly totals: { readonly newly_refused: number } }
}

const caLine = (
  name: string,
  { intermediate_sha256: digest, root_sha256: root, intermediate_not_after: end }: OwnCa,
) => `${name} ${digest} under the root ${root}, ends ${end.slice(0, 10)}`

function print(say: PrintLines, body: Record<string, unknown>): void {
  // The admin API's own shape, of the version that runs.
  const { phase, issuing, other, holders, rehearsal } = body as unknown as ShownRotation
  say(`phase: ${phase}`, caLine('issuing:', issuing))
  if (other) say(caLine(phase === 'prepared' ? 'next:   ' : 'old:    ', other))
  if (holders) {
    const { active, in_grace: grace, inactive, principals } = holders
    say(`hold the old one: ${active} active, ${grace} with a newer one, ${inactive} inactive`)
    say(...principals.map(({ principal_id: id }) => `  ${id}`))
    if (active > principals.length) say(`  and ${active - principals.length} more`)
  }
  if (rehearsal) say(`calls of the last 30 days that would be refused: ${rehearsal.totals.newly_refused}`)
}

const step = async (call: AdminCall, say: PrintLines, name: string, body?: unknown): Promise<void> =>
  print(say, expectStatus(await call('POST', `${ROTATION}/${name}`, body), 200))

const FORCE = {
  'dry-run': {
    type: 'boolean',
    default: false,
    description: 'change nothing: say who would be locked out, and how many of their calls',
  },
  force: {
    type: 'boolean',
    default: false,
    description: 'even if active principals hold certificates of that CA and no newer ones; give a reason',
  },
  reason: { type: 'string', value: 'TEXT', description: 'why it is forced' },
} as const

/** Makes a step that ends a CA, which may lock somebody out. */
const ending = (name: string, about: string) =>
  subcommandOf({
    takes: '',
    about,
    options: FORCE,
    check: ({ force, reason }) => {
      if (force && reason === undefined) throw new Error('say why: --force --reason TEXT')
    },
    run: async ({ call, say, values: { 'dry-run': isDry, force, reason } }) => {
      const query = new URLSearchParams({
        ...(isDry && { dry_run: 'true' }),
        ...(force && reason !== undefined && { force: 'true', reason }),
      }).toString()
      await step(call, say, query === '' ? name : `${name}?${query}`)
    },
  })

/** The subcommands of `sallyport ca` that replace the service's own CA (docs/operating.md#replace-the-ca). */
export const ROTATION_VERBS = {
  status: subcommandOf({
    takes: '',
    about: "the gateway's own CA, the one that replaces it, and who still holds certificates of the old one",
    options: JSON_OPTION,
    run: async ({ call, say, values: { json } }) => {
      const body = expectStatus(await call('GET', ROTATION), 200)
      if (json) say(...jsonLines([body]))
      else print(say, body)
    },
  }),
  prepare: subcommandOf({
    takes: '',
    about:
      "make the gateway's next CA: both are trusted from now on, certificates still come from the old one",
    options: {
      intermediate: {
        type: 'boolean',
        default: false,
        description: 'a new intermediate under the same root, in place of a new root too',
      },
    },
    run: ({ call, say, values: { intermediate } }) =>
      step(call, say, 'prepare', { scope: intermediate ? 'intermediate' : 'root' }),
  }),
  issue: subcommandOf({
    takes: '',
    about: 'have the next CA issue: old certificates are accepted still, and renewed at once',
    run: ({ call, say }) => step(call, say, 'issue'),
  }),
  finish: ending('finish', 'end the old CA, and all certificates of it'),
  cancel: ending('cancel', 'take the last of these steps back'),
}
