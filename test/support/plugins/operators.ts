import { unstoredOperator } from '../../../plugins/operators/actor.ts'
import { EditedTexts } from '../../../plugins/pin/edited-texts.ts'
import { Pipeline } from '../../../plugins/plugin.ts'
import type { AdminSecretSource } from '../../../plugins/secrets/admin-secret.ts'
import type { AdminContext } from '../../../proxy/admin/operation/context.ts'
import { LedgerPlaces, RehearsalPlaces } from '../../../proxy/admin/operation/ledger-places.ts'

/** Judges no call. */
export const NO_WHAT_IF: AdminContext['whatIf'] = {
  model: () => {
    throw new Error('no call is judged here')
  },
  tool: { path: '', pipeline: Pipeline.start(), notAsked: [] },
}

/** Whoever has the secret, in a test that calls operations without HTTP. */
export const { actor: ADMIN } = unstoredOperator('admin', 'secret', [])

/** The parts of an operation's surroundings that tests without HTTP do not look at. */
export const UNASKED = {
  hasEnvironmentSecret: false,
  whatIf: NO_WHAT_IF,
  providers: { list: () => ({ since: '', providers: [], routes: [] }), ask: () => Promise.resolve(null) },
  findPrices: () => ({ configured: false, table: null, prices: [] }),
  twoPerson: [],
  expected: { sentences: [], enforceToolsCall: false, httpGet: false },
  signsIn: () => Promise.resolve(false),
  sessionRules: { idleMs: 900_000, absoluteMs: 28_800_000 },
  walkCalls: () => Promise.reject(new Error('nobody rehearses here')),
  rehearsalPlaces: new RehearsalPlaces(),
  ledgerPlaces: new LedgerPlaces(),
  sealing: { stopped: false },
  exports: { list: () => Promise.resolve([]), rewind: () => Promise.resolve(null) },
  archive: {
    options: null,
    alarm: () => Promise.reject(new Error('nobody asks for the archive here')),
    standing: () => Promise.reject(new Error('nobody asks for the archive here')),
    plan: () => Promise.reject(new Error('nobody asks for the archive here')),
    list: () => Promise.resolve([]),
    mayForget: () => false,
    wake: () => {},
  },
  editedTexts: new EditedTexts(() => {}),
  requireRehearsal: 'never',
  recordDenied: () => Promise.resolve(),
  naming: {
    fixed: { org: true, trustDomain: true },
    makeAuthority: () => Promise.reject(new Error('nobody names anything here')),
    follow: () => Promise.resolve(),
  },
  rotation: {
    read: () => Promise.reject(new Error('nobody replaces the CA here')),
    prepare: () => Promise.reject(new Error('nobody replaces the CA here')),
    store: () => Promise.resolve([]),
  },
} as const

/** A secret whose stored hash a test holds itself. */
export const secretOf = (hash: () => string, environment = ''): AdminSecretSource => ({
  stored: () => Promise.resolve({ hash: hash(), disabled: false }),
  environment,
  unchanged: () => ({ sql: 'select 1', parameters: [] }),
  onUse: () => {},
})
