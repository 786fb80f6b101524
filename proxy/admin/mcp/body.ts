import { z } from 'zod'
import type { FieldError } from '../../../db/capabilities.ts'
import type { ApprovalRule } from '../../../db/ledger/approvals/approval-rule.ts'
import {
  approverOf,
  capabilityOf,
  isProofEnough,
  minProofOf,
  type ProofDemands,
} from '../../../db/ledger/authority/rule.ts'
import { type McpResourceFields, NO_APPROVALS } from '../../../db/mcp/resources.ts'
import { hostRefusal } from '../../egress/address.ts'
import { checkSecretReference, SecretReferenceError } from '../../egress/secret-reference.ts'
import {
  approverKind,
  capabilityField,
  minProof,
  toolApprovals,
  toolCapabilities,
  toolMinProof,
} from '../operation/shapes.ts'
import { oauthSettings, secretRef } from './oauth.ts'

type ResourceRequirements = Pick<
  McpResourceFields,
  'required_capability' | 'tool_capabilities' | 'min_proof' | 'tool_min_proof'
> &
  Partial<ApprovalRule>

/**
 * True if a set that did not open a tool before opens it now: the tool demanded a capability, or an approval,
 * and demands none or another one; or a weaker proof is taken. A first demand, enabling and disabling lower
 * nothing. Does NOT ask if anybody is bound.
 */
export function reducesRequirements(before: ResourceRequirements, after: ResourceRequirements): boolean {
  const named = new Set([...Object.keys(before.tool_capabilities), ...Object.keys(after.tool_capabilities)])
  const ofOthers = [before.required_capability, after.required_capability] as const
  const pairs = [...named].map((tool) => [capabilityOf(before, tool), capabilityOf(after, tool)] as const)
  return (
    [ofOthers, ...pairs].some(([was, is]) => was !== null && was !== is) ||
    reducesApprovals(before, after) ||
    lowersProof(before, after)
  )
}

function reducesApprovals(before: Partial<ApprovalRule>, after: Partial<ApprovalRule>): boolean {
  const [was, is] = [
    { ...NO_APPROVALS, ...before },
    { ...NO_APPROVALS, ...after },
  ]
  const named = [...Object.keys(was.tool_approvals), ...Object.keys(is.tool_approvals)]
  const pairs = named.map((tool) => [approverOf(was, tool), approverOf(is, tool)] as const)
  return [[was.approval, is.approval] as const, ...pairs].some(
    ([one, other]) => one !== null && one !== other,
  )
}

/** True if a tool, or anything else of a server, takes a weaker proof than before. */
export function lowersProof(before: ProofDemands, after: ProofDemands): boolean {
  const named = Object.keys({ ...before.tool_min_proof, ...after.tool_min_proof })
  return [null, ...named].some((tool) => !isProofEnough(minProofOf(after, tool), minProofOf(before, tool)))
}

const MAX_DOMAINS = 32
const MAX_URL_LENGTH = 2048

// `http.get` is a tool of our own, and a resource named `http` could offer another.
const RESERVED: readonly string[] = ['http', 'http.get']

const resourceName = z
  .string()
  .regex(
    /^(?!\.{1,2}$)[A-Za-z0-9_.-]{1,64}$/,
    'must be 1 to 64 of a-z, A-Z, 0-9, dot, underscore and hyphen, and not "." or ".."',
  )
  .refine((text) => !RESERVED.includes(text), 'is reserved by this service')

/** An endpoint as `new URL()` writes it. Does NOT say if this gateway would connect to it. */
const endpointUrl = z
  .string()
  .max(MAX_URL_LENGTH)
  // URL() would drop the white space and hide the rest.
  .regex(/^https?:\/\/[^\s\p{C}#\\]+$/iu, 'must be an http or https URL without white space or fragment')
  .transform((text, context) => {
    const url = URL.parse(text)
    const fault = url ? urlFault(url, text) : 'is not a URL'
    if (url && fault === null) return url.href
    // Not repeated: it may hold a password.
    context.addIssue({ code: 'custom', message: fault ?? 'is not a URL' })
    return z.NEVER
  })

function urlFault(url: URL, text: string): string | null {
  const authority = /^https?:\/\/([^/?]*)/i.exec(text)?.[1] ?? ''
  if (authority.includes('@'))
    return 'must not contain a user name or password: name the secret in auth_secret_ref'
  return url.href.length > MAX_URL_LENGTH ? `must be at most ${MAX_URL_LENGTH} characters long` : null
}

const domain = z.string().transform((text, context) => {
  const url = /^(\[[0-9a-f:.]+\]|[^\s\p{C}/\\@?#%:*[\]]+)$/iu.test(text) ? URL.parse(`http://${text}/`) : null
  if (url && url.hostname.length <= 253) return url.hostname
  context.addIssue({ code: 'custom', message: 'must be a host name, without scheme, port and path' })
  return z.NEVER
})

/** Host names as `new URL()` writes them, each once. */
const domains = z
  .array(domain)
  .max(MAX_DOMAINS)
  .transform((all) => [...new Set(all)])

/** The description of a resource: shown to people as `displayName` is, and longer. */
const description = z
  .string()
  .max(1024)
  .regex(/^[^\p{Cc}\p{Cf}\p{Zl}\p{Zp}]*$/u, 'must not contain control or formatting characters')

export const authType = z.enum(['none', 'bearer', 'api_key', 'mtls', 'oauth'])

const ttl = z.int().min(60).max(86_400).meta({
  description: 'How long a call may wait for its approval, and an approval for its call. s. Default 600.',
})

const wait = z.int().min(0).max(110).meta({
  description: 'How long a call is held before it is refused for lack of an approval. s. Default 0.',
})

/** The body of a registration (docs/protocol.md#mcp-resources). */
export const newMcpResource = z.strictObject({
  name: resourceName,
  description: description.nullish(),
  endpoint_url: endpointUrl,
  auth_type: authType.default('none'),
  auth_secret_ref: secretRef.nullish(),
  oauth: oauthSettings.nullish(),
  required_capability: capabilityField.nullish(),
  allowed_domains: domains.nullish(),
  enabled: z.boolean().default(true),
  tool_capabilities: toolCapabilities.nullish(),
  approval: approverKind.optional(),
  tool_approvals: toolApprovals.nullish(),
  approval_ttl_s: ttl.optional(),
  approval_wait_s: wait.optional(),
  min_proof: minProof.default('certificate'),
  tool_min_proof: toolMinProof.nullish(),
})

/** The body of a change: any of the fields. Null empties one that may be empty. */
export const mcpResourcePatch = z.strictObject({
  name: resourceName.exactOptional(),
  description: description.nullable().exactOptional(),
  endpoint_url: endpointUrl.exactOptional(),
  auth_type: authType.exactOptional(),
  auth_secret_ref: secretRef.nullable().exactOptional(),
  oauth: oauthSettings.nullable().exactOptional(),
  required_capability: capabilityField.nullable().exactOptional(),
  allowed_domains: domains.nullable().exactOptional(),
  enabled: z.boolean().exactOptional(),
  tool_capabilities: toolCapabilities.nullable().exactOptional(),
  approval: approverKind.exactOptional(),
  tool_approvals: toolApprovals.nullable().exactOptional(),
  approval_ttl_s: ttl.exactOptional(),
  approval_wait_s: wait.exactOptional(),
  min_proof: minProof.exactOptional(),
  tool_min_proof: toolMinProof.nullable().exactOptional(),
})

export const fieldsOfNew = (registration: z.output<typeof newMcpResource>): McpResourceFields => ({
  ...registration,
  description: registration.description ?? null,
  auth_secret_ref: registration.auth_secret_ref ?? null,
  oauth: registration.oauth ?? null,
  required_capability: registration.required_capability ?? null,
  allowed_domains: registration.allowed_domains ?? [],
  tool_capabilities: registration.tool_capabilities ?? {},
  approval: registration.approval ?? null,
  tool_approvals: registration.tool_approvals ?? NO_APPROVALS.tool_approvals,
  approval_ttl_s: registration.approval_ttl_s ?? NO_APPROVALS.approval_ttl_s,
  approval_wait_s: registration.approval_wait_s ?? NO_APPROVALS.approval_wait_s,
  tool_min_proof: registration.tool_min_proof ?? {},
})

/** The fields of a resource after a change. One that needs no secret, or no account, any more has none. */
export function fieldsOfPatch(
  before: McpResourceFields,
  patch: z.output<typeof mcpResourcePatch>,
): McpResourceFields {
  const merged = { ...before, ...patch }
  const { auth_type: auth } = patch
  const isOpen = auth === 'none' || auth === 'oauth'
  return {
    ...pickFields(merged as McpResourceFields, RESOURCE_FIELDS),
    auth_secret_ref: isOpen && patch.auth_secret_ref === undefined ? null : merged.auth_secret_ref,
    oauth: auth !== undefined && auth !== 'oauth' && patch.oauth === undefined ? null : merged.oauth,
    allowed_domains: merged.allowed_domains ?? [],
    tool_capabilities: merged.tool_capabilities ?? {},
    tool_approvals: merged.tool_approvals ?? NO_APPROVALS.tool_approvals,
    tool_min_proof: merged.tool_min_proof ?? {},
  }
}

export type McpResourceField = keyof McpResourceFields

// Proven by the type of fieldsOfNew: a registration has them all.
export const RESOURCE_FIELDS = Object.keys(newMcpResource.shape) as readonly McpResourceField[]

export const pickFields = <Name extends McpResourceField>(
  fields: McpResourceFields,
  names: readonly Name[],
): Pick<McpResourceFields, Name> =>
  // Proven by the names.
  Object.fromEntries(names.map((name) => [name, fields[name]])) as Pick<McpResourceFields, Name>

/** Faults between fields that are each well-formed. Does NOT look at other resources. */
export function faultsBetween({
  auth_type: auth,
  auth_secret_ref: ref,
  allowed_domains: allowed,
  endpoint_url: endpoint,
  oauth,
}: McpResourceFields): readonly FieldError[] {
  const faults: FieldError[] = []
  const isOpen = auth === 'none' || auth === 'oauth'
  if (isOpen && ref !== null)
    faults.push({ field: 'auth_secret_ref', message: `must be absent with auth_type ${auth}` })
  if (!isOpen && ref === null)
    faults.push({ field: 'auth_secret_ref', message: `is required with auth_type ${auth}` })
  if (auth === 'oauth' && oauth === null)
    faults.push({ field: 'oauth', message: 'is required with auth_type oauth' })
  if (auth !== 'oauth' && oauth !== null)
    faults.push({ field: 'oauth', message: `must be absent with auth_type ${auth}` })
  if (allowed.length > 0 && !allowed.includes(new URL(endpoint).hostname)) {
    faults.push({ field: 'allowed_domains', message: 'must contain the host of endpoint_url' })
  }
  return faults
}

/** Says why this gateway would never connect to the endpoint, as far as its URL alone tells. */
export function endpointFault(endpoint: string, allowPrivate: boolean): readonly FieldError[] {
  const reason = hostRefusal(new URL(endpoint), allowPrivate)
  if (reason === null) return []
  const cure =
    reason === 'loopback' || reason === 'private'
      ? ': MCP_PROXY_ALLOW_PRIVATE_UPSTREAMS=true in the environment of the gateway allows it'
      : ''
  return [
    {
      field: 'endpoint_url',
      message: `names a host that this gateway does not connect to (${reason})${cure}`,
    },
  ]
}

/** Says why the gateway would never read the secret of that reference. Follows links. */
export async function secretFault(
  reference: string | null,
  directory: string,
  field = 'auth_secret_ref',
): Promise<readonly FieldError[]> {
  if (reference === null) return []
  try {
    await checkSecretReference(reference, directory)
    return []
  } catch (error) {
    if (!(error instanceof SecretReferenceError)) throw error
    return [{ field, message: error.message }]
  }
}
