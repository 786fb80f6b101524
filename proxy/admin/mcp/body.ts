import { z } from 'zod'
import type { FieldError } from '../../../db/capabilities.ts'
import type { McpResourceFields } from '../../../db/mcp/resources.ts'
import { hostRefusal } from '../../egress/address.ts'
import { checkSecretReference, SecretReferenceError } from '../../egress/secret-reference.ts'
import { capabilityField, toolCapabilities } from '../operation/shapes.ts'
import { authType, description, domains, endpointUrl, resourceName, secretRef } from './fields.ts'

/** The body of a registration (docs/protocol.md#mcp-resources). */
export const newMcpResource = z.strictObject({
  name: resourceName,
  description: description.nullish(),
  endpoint_url: endpointUrl,
  auth_type: authType.default('none'),
  auth_secret_ref: secretRef.nullish(),
  required_capability: capabilityField.nullish(),
  allowed_domains: domains.nullish(),
  enabled: z.boolean().default(true),
  tool_capabilities: toolCapabilities.nullish(),
})

/** The body of a change: any of the fields. Null empties one that may be empty. */
export const mcpResourcePatch = z.strictObject({
  name: resourceName.exactOptional(),
  description: description.nullable().exactOptional(),
  endpoint_url: endpointUrl.exactOptional(),
  auth_type: authType.exactOptional(),
  auth_secret_ref: secretRef.nullable().exactOptional(),
  required_capability: capabilityField.nullable().exactOptional(),
  allowed_domains: domains.nullable().exactOptional(),
  enabled: z.boolean().exactOptional(),
  tool_capabilities: toolCapabilities.nullable().exactOptional(),
})

export const fieldsOfNew = (registration: z.output<typeof newMcpResource>): McpResourceFields => ({
  ...registration,
  description: registration.description ?? null,
  auth_secret_ref: registration.auth_secret_ref ?? null,
  required_capability: registration.required_capability ?? null,
  allowed_domains: registration.allowed_domains ?? [],
  tool_capabilities: registration.tool_capabilities ?? {},
})

/** The fields of a resource after a change. One that needs no secret any more has none. */
export function fieldsOfPatch(
  before: McpResourceFields,
  patch: z.output<typeof mcpResourcePatch>,
): McpResourceFields {
  const merged = { ...before, ...patch }
  const kept =
    patch.auth_type === 'none' && patch.auth_secret_ref === undefined ? null : merged.auth_secret_ref
  return {
    name: merged.name,
    description: merged.description,
    endpoint_url: merged.endpoint_url,
    auth_type: merged.auth_type,
    auth_secret_ref: kept,
    required_capability: merged.required_capability,
    allowed_domains: merged.allowed_domains ?? [],
    enabled: merged.enabled,
    tool_capabilities: merged.tool_capabilities ?? {},
  }
}

/** Faults between fields that are each well-formed. Does NOT look at other resources. */
export function faultsBetween({
  auth_type: auth,
  auth_secret_ref: ref,
  allowed_domains: allowed,
  endpoint_url: endpoint,
}: McpResourceFields): readonly FieldError[] {
  const faults: FieldError[] = []
  if (auth === 'none' && ref !== null)
    faults.push({ field: 'auth_secret_ref', message: 'must be absent with auth_type none' })
  if (auth !== 'none' && ref === null)
    faults.push({ field: 'auth_secret_ref', message: `is required with auth_type ${auth}` })
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
): Promise<readonly FieldError[]> {
  if (reference === null) return []
  try {
    await checkSecretReference(reference, directory)
    return []
  } catch (error) {
    if (!(error instanceof SecretReferenceError)) throw error
    return [{ field: 'auth_secret_ref', message: error.message }]
  }
}
