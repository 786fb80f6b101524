import type { GeneralName, GeneralSubtree } from 'pkijs'
import type { ChainCertificate } from './chain-link.ts'

const DNS_NAME = 2
const DIRECTORY_NAME = 4
const URI_NAME = 6

/**
 * Tells whether every certificate below `issuer` has only names that its nameConstraints permit
 * (RFC 5280 §4.2.1.10). Understands URI and DNS constraints. A constraint of another kind permits nothing:
 * better a refused chain than a rule that is not kept; one on directory names therefore refuses every
 * certificate that has a subject.
 */
export function permitsNames(
  { nameConstraints }: ChainCertificate,
  below: readonly ChainCertificate[],
): boolean {
  if (nameConstraints === null) return true
  const permitted = nameConstraints.permittedSubtrees ?? []
  const excluded = nameConstraints.excludedSubtrees ?? []
  return below.every((link) => {
    const constrainsSubject = [...permitted, ...excluded].some(({ base }) => base.type === DIRECTORY_NAME)
    if (constrainsSubject && link.x509.subject) return false
    return link.names.every((name) => isPermitted(name, permitted) && !isExcluded(name, excluded))
  })
}

function isPermitted(name: GeneralName, permitted: readonly GeneralSubtree[]): boolean {
  const ofKind = permitted.filter(({ base }) => base.type === name.type)
  return ofKind.length === 0 || ofKind.some(({ base }) => nameWithin(name, base) === true)
}

function isExcluded(name: GeneralName, excluded: readonly GeneralSubtree[]): boolean {
  return excluded.some(({ base }) => base.type === name.type && nameWithin(name, base) !== false)
}

/** Tells whether a name lies within the base of a constraint. Null: it cannot be told. */
function nameWithin(name: GeneralName, base: GeneralName): boolean | null {
  const constraint = String(base.value).toLowerCase()
  if (name.type === URI_NAME) return uriHostWithin(String(name.value), constraint)
  if (name.type === DNS_NAME) return domainWithin(String(name.value).toLowerCase(), constraint)
  return null
}

// A leading dot means hosts below it; without one, that host alone.
function uriHostWithin(uri: string, constraint: string): boolean | null {
  const host = URL.parse(uri)?.hostname.toLowerCase()
  if (!host) return null
  return constraint.startsWith('.') ? host.endsWith(constraint) : host === constraint
}

function domainWithin(domain: string, constraint: string): boolean {
  return constraint === '' || domain === constraint || domain.endsWith(`.${constraint.replace(/^\./, '')}`)
}
