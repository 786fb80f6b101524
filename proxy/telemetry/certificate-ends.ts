import { X509Certificate } from 'node:crypto'
import { readFile } from 'node:fs/promises'
import { join } from 'node:path'
import type { DataDirectory } from '../boot/data-directory.ts'

/** Reads when the CA's certificates end, and the server's on the disk, in seconds since the epoch. */
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
