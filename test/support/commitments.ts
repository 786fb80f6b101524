import { readFile } from 'node:fs/promises'
import { join } from 'node:path'
import { openDatabase } from '../../db/engine.ts'
import type { AuditRow } from '../../db/ledger/read/read.ts'
import { commitmentsBy } from '../../plugins/pin/pin.ts'
import { openSubjectKeys } from '../../proxy/auth/subject-keys.ts'
import type { TestGateway } from './gateway.ts'

/** Makes the commitment that a row would hold under that name, if these were the bytes. */
export type Commit = (row: AuditRow, label: string, bytes: string | Buffer) => string

/** The commitments of a gateway that runs, or has: by the keys in its database. */
export async function commitmentsIn({ settings }: TestGateway): Promise<Commit> {
  const { dataDir } = settings
  const database = await openDatabase(settings.databaseUrl)
  try {
    const passphrase =
      settings.keyPassphrase ?? (await readFile(join(dataDir, 'key-passphrase'), 'utf8')).trim()
    const unused = { commit: () => Promise.reject(new Error('there are no keys yet')) }
    const keys = await openSubjectKeys(database, unused, passphrase, 0)
    const refs = await database.kysely.selectFrom('subject_keys').select('principal_ref').execute()
    const opened = new Map<string, Buffer>()
    for (const { principal_ref: ref } of refs) opened.set(ref, await keys.open(ref))
    return ({ principal_id: ref, request_id: id }, label, bytes) => {
      const key = opened.get(ref ?? '')
      if (!key) throw new Error(`${ref} has no key`)
      return commitmentsBy(key, id ?? '').of(label, bytes)
    }
  } finally {
    await database.close()
  }
}
