import { X509Certificate } from 'node:crypto'
import { readFile } from 'node:fs/promises'
import { join } from 'node:path'
import type { DataDirectory } from '../boot/data-directory.ts'

/**
 * Reads when the CA's certificates and the server's end, in seconds since the epoch; the server's only if
 * there is one on the disk.
 */
export async function certificateEnds({
  authority,
  settings,
}: Pick<DataDirectory, 'authority' | 'settings'>): Promise<ReadonlyMap<string, number>> {
  const server = await readFile(join(settings.dataDir, 'ca', 'server.crt')).catch(() => null)
  const all = { root: authority.rootPem, intermediate: authority.intermediatePem, ...(server && { server }) }
  return new Map(
    Object.entries(all).map(([name, pem]) => [name, new X509Certificate(pem).validToDate.getTime() / 1000]),
  )
}
