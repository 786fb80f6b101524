/** Administration's capabilities (docs/operators.md#capabilities), which only operators hold. */
export const ADMIN_CAPABILITIES = [
  /** To look at everything but the ledger. */
  'admin.read',
  /** To create, certify, rotate, deactivate and erase agents, users and workloads. */
  'admin.enroll',
  /** To set their capabilities, and the MCP servers they reach. */
  'admin.grant',
  /** To put MCP servers behind the gateway, and approve their tools. */
  'admin.tools',
  /** To read, export and verify the ledger. */
  'admin.audit',
  /** To say which CAs are trusted. */
  'admin.settings',
  /** To approve calls of others that wait for it (docs/approvals.md). */
  'admin.approve',
  /** To make operators and change them; the operator secret and the signing key. */
  'admin.operators',
  /** To stop calls at once. Ending a stop takes `admin.grant`. */
  'admin.stop',
] as const

/** The kinds of changes that a second operator may have to confirm (docs/operators.md#two-people). */
export const TWO_PERSON_KINDS = [
  'grant',
  'tools',
  'operators',
  'settings',
  'trust',
  'archive',
  'stop_end',
] as const

export type TwoPersonKind = (typeof TWO_PERSON_KINDS)[number]

export type AdminCapability = (typeof ADMIN_CAPABILITIES)[number]

/** Shorthand for people. Only a set's tokens are stored, never its name. */
export const OPERATOR_SETS = {
  viewer: ['admin.read'],
  granter: ['admin.read', 'admin.grant', 'admin.enroll', 'admin.stop'],
  auditor: ['admin.read', 'admin.audit'],
  approver: ['admin.read', 'admin.approve', 'admin.stop'],
  owner: ADMIN_CAPABILITIES,
} as const satisfies Readonly<Record<string, readonly AdminCapability[]>>

export type OperatorSet = keyof typeof OPERATOR_SETS

export const isOperatorSet = (name: string): name is OperatorSet => Object.hasOwn(OPERATOR_SETS, name)

/** Tells a token that is an operator's alone. */
export const hasAdminPrefix = (capability: string): boolean => capability.startsWith('admin.')

/** Tells a token that operators may hold. */
export const isAdminCapability = (capability: string): capability is AdminCapability =>
  (ADMIN_CAPABILITIES as readonly string[]).includes(capability)
