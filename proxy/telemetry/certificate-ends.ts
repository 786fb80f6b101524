import { X509Certificate } from 'node:crypto'
import { readFile } from 'node:fs/promises'
import { join } from 'node:path'
import type { DataDirectory } from '../boot/data-directory.ts'

/** Reads when the CAs' certificates end, and the server's on the disk, in seconds since the epoch. */
export async function certificateEnds({
  authority,
  settings,
}: Pick<DataDirectory, 'authority' | 'settings'>): Promise<ReadonlyMap<string, number>> {
  const server = await readFile(join(settings.dataDir, 'ca', 'server.crt')).catch(() => null)
  const { rootPem, intermediatePem, rotation } = authority
  const name = rotation?.phase === 'issuing' ? 'old' : 'next'
  const all = {
    ...{ root: rootPem, intermediate: intermediatePem },
    ...(rotation && {
      [`${name}_root`]: rotation.other.rootPem,
      [`${name}_intermediate`]: rotation.other.intermediatePem,
    }),
    ...(server && { server }),
  }
  return new Map(
    Object.entries(all).map(([name, pem]) => [name, new X509Certificate(pem).validToDate.getTime() / 1000]),
  )
}
