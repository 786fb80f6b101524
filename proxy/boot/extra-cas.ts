import { readFileSync } from 'node:fs'
import { getCACertificates, setDefaultCACertificates } from 'node:tls'
import { type CaFile, caFileOf } from '../../db/support/ca-file.ts'

/**
 * Trusts every sound CA of `NODE_EXTRA_CA_CERTS`: Node itself takes none from the first odd block on, and every
 * server that they vouch for is then unreachable. Returns a sentence for the operator about each block that
 * vouches for nobody, or about the file. Applies to this thread. `at`: ms since the epoch.
 */
export function trustExtraCas(
  env: Readonly<Record<string, string | undefined>>,
  at: number,
): readonly string[] {
  const { NODE_EXTRA_CA_CERTS: file } = env
  if (!file) return []
  const named = `NODE_EXTRA_CA_CERTS=${JSON.stringify(file)}`
  const { cas, odd } = read(file, at)
  if (cas.length === 0)
    return [
      `no CA was read from ${named}: name a file of certificates in PEM that the gateway may read, and start it again`,
    ]
  if (odd.length > 0) setDefaultCACertificates([...getCACertificates('default'), ...cas])
  return odd.map((fault) => `${fault}: take it out of ${named}`)
}

function read(file: string, at: number): CaFile {
  try {
    return caFileOf(readFileSync(file, 'utf8'), at)
  } catch {
    return { cas: [], odd: [] }
  }
}
