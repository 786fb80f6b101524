import { getCACertificates } from 'node:tls'

/**
 * Finds out why `NODE_EXTRA_CA_CERTS` adds no CA: one sentence for the operator, or null. Node itself goes on
 * without any, and every server that they vouch for is then unreachable.
 */
export function extraCasFault(env: Readonly<Record<string, string | undefined>>): string | null {
  const { NODE_EXTRA_CA_CERTS: file } = env
  if (!file || getCACertificates('extra').length > 0) return null
  return `no CA was read from NODE_EXTRA_CA_CERTS=${JSON.stringify(file)}: name a file of certificates in PEM that the gateway may read, and start it again`
}
