import { createPrivateKey, generateKeyPair, type KeyObject } from 'node:crypto'
import { promisify } from 'node:util'
import { type CryptoKey, calculateJwkThumbprint, exportJWK, importJWK, type JWK } from 'jose'
import { seal, unseal } from '../../certs/authority/key-store.ts'
import type { Database } from '../../db/database.ts'
import type { LedgerEntry } from '../../db/ledger/record/entry.ts'
import type { Ledger } from '../../db/ledger/record/ledger.ts'
import { listSigningKeys, replaceSigningKey, type SigningKeyRow } from '../../db/signing-keys.ts'
import { AUTHORITY_TOPIC } from '../../db/support/notices.ts'
import type { LedgerStatement } from '../../db/support/statement.ts'

/** The longest life of a token; no retired key is needed for longer. Seconds. */
export const TOKEN_LIFE_MAX_S = 900
/**
 * The time that a list of keys is believed before the database is read again, unless another process has said
 * that it rotated. ms.
 */
const FRESH_MS = 30_000
/**
 * The least time between two readings for a key that is not in the list, if nothing has changed: a caller may
 * name any. ms.
 */
const UNKNOWN_MS = 1_000

const generate = promisify(generateKeyPair)

export interface TokenSigner {
  readonly kid: string
  readonly key: KeyObject
}

/** The keys that access tokens are signed with (ES256). */
export interface TokenKeys {
  readonly signer: () => Promise<TokenSigner>
  /** Returns the public key of that id, while a token signed with it may still be in force. */
  readonly verifier: (kid: string) => Promise<CryptoKey | undefined>
  /** Returns the public keys as a key set (RFC 7517). */
  readonly jwks: () => Promise<{ readonly keys: readonly JWK[] }>
  /**
   * Makes a new key, which signs from now on; the one before verifies until its last token has expired.
   * `entry` makes the audit row. Resolves with the id of the new key.
   */
  readonly rotate: (entry: (kid: string) => LedgerEntry) => Promise<string>
}

interface TokenKeyDependencies {
  readonly database: Database
  readonly ledger: Pick<Ledger, 'commit'>
  readonly passphrase: string
  /** Fails the unit that stores a key if the passphrase is no longer the one in force. */
  readonly inForce?: LedgerStatement
  readonly clock: () => number
}

interface LoadedTokenKeys {
  readonly at: number
  readonly rows: readonly SigningKeyRow[]
  readonly verifiers: ReadonlyMap<string, CryptoKey>
}

/**
 * Opens the keys in the database; the first boot makes one. Private keys are sealed there, and unsealed once
 * a process.
 */
export async function openTokenKeys(sources: TokenKeyDependencies): Promise<TokenKeys> {
  const { database, passphrase, clock } = sources
  let loaded = await load(database, clock())
  if (!loaded.rows.some(({ retired_at: retired }) => retired === null)) {
    await store(sources, [])
    loaded = await load(database, clock())
  }
  let signing: TokenSigner | null = null
  let loadedAt = performance.now()
  let stale = false
  // Another process may have rotated.
  database.notices.on(AUTHORITY_TOPIC, () => {
    stale = true
  })

  const reload = async (): Promise<LoadedTokenKeys> => {
    stale = false
    loadedAt = performance.now()
    loaded = await load(database, clock())
    return loaded
  }
  const fresh = async (): Promise<LoadedTokenKeys> =>
    stale || clock() - loaded.at > FRESH_MS ? reload() : loaded
  /** The keys for one that is not in the list: it may be of another process, which has rotated just now. */
  const latest = async (): Promise<LoadedTokenKeys> => {
    if (clock() - loaded.at > UNKNOWN_MS || (await database.current?.(loadedAt)) === false) return reload()
    return loaded
  }
  const signer = async (): Promise<TokenSigner> => {
    const row = (await fresh()).rows.find(({ retired_at: retired }) => retired === null)
    if (!row) throw new Error('no key signs access tokens')
    if (signing?.kid !== row.kid) {
      signing = { kid: row.kid, key: createPrivateKey(unseal(row.sealed_key, passphrase)) }
    }
    return signing
  }
  // Before the passphrase may be rotated.
  await signer()
  return {
    signer,
    verifier: async (kid) => (await fresh()).verifiers.get(kid) ?? (await latest()).verifiers.get(kid),
    jwks: async () => ({ keys: (await fresh()).rows.map((row) => JSON.parse(row.public_jwk) as JWK) }),
    rotate: async (entry) => {
      const kid = await store(sources, [entry])
      await reload()
      return kid
    },
  }
}

async function load(database: Database, at: number): Promise<LoadedTokenKeys> {
  // Another replica signs with a retired key until it looks again, so its last token is that much younger.
  const rows = await listSigningKeys(database, at - TOKEN_LIFE_MAX_S * 1000 - FRESH_MS)
  const verifiers = new Map<string, CryptoKey>()
  for (const { kid, public_jwk: jwk } of rows) {
    // An EC key, which jose imports as a CryptoKey and never as bytes.
    verifiers.set(kid, (await importJWK(JSON.parse(jwk) as JWK, 'ES256')) as CryptoKey)
  }
  return { at, rows, verifiers }
}

async function store(
  { database, ledger, passphrase, inForce, clock }: TokenKeyDependencies,
  entries: ((kid: string) => LedgerEntry)[],
): Promise<string> {
  const { publicKey, privateKey } = await generate('ec', { namedCurve: 'P-256' })
  const jwk = await exportJWK(publicKey)
  const kid = await calculateJwkThumbprint(jwk)
  const publicJwk = JSON.stringify({ ...jwk, kid, alg: 'ES256', use: 'sig' })
  const sealedKey = seal(privateKey.export({ type: 'pkcs8', format: 'pem' }).toString(), passphrase)
  await ledger.commit({
    statements: [
      ...(inForce ? [inForce] : []),
      ...replaceSigningKey(database, { kid, publicJwk, sealedKey, at: clock() }),
    ],
    entries: entries.map((entry) => entry(kid)),
  })
  return kid
}
