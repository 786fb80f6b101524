import { createPrivateKey, generateKeyPair, type KeyObject } from 'node:crypto'
import { promisify } from 'node:util'
import { seal, unseal } from '../../certs/authority/key-store.ts'
import type { Database } from '../../db/database.ts'
import type { LedgerEntry } from '../../db/ledger/record/entry.ts'
import type { Ledger } from '../../db/ledger/record/ledger.ts'
import { checkpointText } from '../../db/ledger/tree/checkpoint.ts'
import { parseVerifierKey, signNote, verifierKeyText } from '../../db/ledger/tree/note.ts'
import { archiveBoundary } from '../../db/ledger/tree/segments.ts'
import {
  beginTree,
  continueTree,
  currentTree,
  rotateKey,
  type StoredKey,
  type StoredTree,
  treeKeysOf,
} from '../../db/ledger/tree/store.ts'
import { type LedgerStatement, timestamp } from '../../db/support/statement.ts'
import type { OrganisationNames } from '../boot/names.ts'

/** The time that the key before the newest goes on signing alongside it. ms. */
const BOTH_SIGN_MS = 24 * 60 * 60 * 1000

const generate = promisify(generateKeyPair)

export interface LogKeyDependencies {
  readonly database: Database
  readonly ledger: Pick<Ledger, 'commit'>
  readonly passphrase: string
  /** Fails the unit that stores a key if the passphrase is no longer the one in force. */
  readonly inForce?: LedgerStatement
  readonly clock: () => number
}

/** The keys that sign the checkpoints of the log (Ed25519, C2SP signed-note). */
export class LogKeys {
  readonly #sources: LogKeyDependencies
  /** Unsealed once a process, by id. */
  readonly #unsealed = new Map<string, KeyObject>()

  constructor(sources: LogKeyDependencies) {
    this.#sources = sources
  }

  /** The text of the newest verifier key of the tree in force. */
  async verifierKey(): Promise<string> {
    const { database } = this.#sources
    const tree = await currentTree(database.kysely)
    const [newest] = tree ? await treeKeysOf(database.kysely, tree.tree) : []
    if (!newest) throw new Error('no key signs the audit log')
    return newest.vkey
  }

  /** Opens the keys that sign now, before the passphrase may be rotated. */
  async open(): Promise<void> {
    const tree = await currentTree(this.#sources.database.kysely)
    for (const key of tree ? await this.#signing(tree) : []) this.#unseal(key)
  }

  /** The lines by which the keys of a tree that sign now sign a text, newest first. */
  async sign(tree: Pick<StoredTree, 'tree' | 'origin'>, text: string): Promise<readonly string[]> {
    const signing = await this.#signing(tree)
    if (signing.length === 0) throw new Error(`no key signs ${tree.origin}`)
    return signing.map((key) => signNote(text, tree.origin, this.#unseal(key)))
  }

  async #signing({ tree }: Pick<StoredTree, 'tree'>): Promise<readonly StoredKey[]> {
    const { database, clock } = this.#sources
    const now = timestamp(clock())
    return (await treeKeysOf(database.kysely, tree)).filter(
      ({ retired_at: retired }) => retired === null || retired > now,
    )
  }

  /** Begins a tree, with a key of its own, and the row that says so if there is one. */
  async begin(
    tree: Omit<StoredTree, 'size' | 'place' | 'begun_at'>,
    entries: readonly LedgerEntry[],
  ): Promise<void> {
    const { database, ledger, clock } = this.#sources
    const { kysely } = database
    const key = await this.#make(tree)
    const begun = { ...tree, ...(await archiveBoundary(kysely)), begun_at: timestamp(clock()) }
    const { size, origin } = begun
    const sign = (root: Buffer) => [
      signNote(checkpointText({ origin, size, root }), origin, this.#unseal(key)),
    ]
    const before = size === 0 ? undefined : await currentTree(kysely)
    const archived = before ? await continueTree(kysely, before.tree, begun, sign) : []
    const stored = [...beginTree(kysely, { tree: begun, key }), ...archived]
    await ledger.commit({ statements: [...this.#inForce(), ...stored], entries })
  }

  /**
   * Lets a new key sign from now on; the one before signs alongside it for a day. Resolves with its verifier
   * key.
   */
  readonly rotate = async (entry: (vkey: string) => LedgerEntry): Promise<string> => {
    const { database, ledger, clock } = this.#sources
    const tree = await currentTree(database.kysely)
    if (!tree) throw new Error('no audit tree has begun')
    const key = await this.#make(tree)
    const stored = rotateKey(database.kysely, key, clock() + BOTH_SIGN_MS)
    await ledger.commit({ statements: [...this.#inForce(), ...stored], entries: [entry(key.vkey)] })
    return key.vkey
  }

  #inForce(): readonly LedgerStatement[] {
    const { inForce } = this.#sources
    return inForce ? [inForce] : []
  }

  async #make({ tree, origin }: Pick<StoredTree, 'tree' | 'origin'>): Promise<StoredKey> {
    const { passphrase, clock } = this.#sources
    const { publicKey, privateKey } = await generate('ed25519')
    const vkey = verifierKeyText(origin, 'log', publicKey)
    return {
      id: parseVerifierKey(vkey).id,
      tree,
      vkey,
      sealed_key: seal(privateKey.export({ type: 'pkcs8', format: 'pem' }).toString(), passphrase),
      created_at: timestamp(clock()),
      retired_at: null,
    }
  }

  #unseal({ id, sealed_key: sealed }: StoredKey): KeyObject {
    const known = this.#unsealed.get(id) ?? createPrivateKey(unseal(sealed, this.#sources.passphrase))
    this.#unsealed.set(id, known)
    return known
  }
}

/** The name of a log in its checkpoints: of the first tree, or of a later one by its number. */
const originOf = ({ trustDomain, organisation }: OrganisationNames, number: number): string =>
  `${trustDomain}/${organisation}/audit${number === 1 ? '' : `/${number}`}`

/**
 * Makes sure that there is a tree of this log's name. One of another name, from before the organisation was
 * named, is left as it is, and a new one begun.
 */
export async function openTree(keys: LogKeys, database: Database, names: OrganisationNames): Promise<void> {
  const inForce = await currentTree(database.kysely)
  const base = originOf(names, 1)
  if (inForce && (inForce.origin === base || inForce.origin.startsWith(`${base}/`))) return
  const reason = inForce ? `the log has a new name: before, it was ${inForce.origin}` : null
  await keys.begin({ tree: (inForce?.tree ?? 0) + 1, origin: base, reason }, [])
}

/** Begins a tree of a new name after one that others know to have been longer. `entry`: its row. */
export async function beginRenamedTree(
  keys: LogKeys,
  database: Database,
  names: OrganisationNames,
  reason: string,
  entry: (origin: string) => LedgerEntry,
): Promise<string> {
  const inForce = await currentTree(database.kysely)
  const tree = (inForce?.tree ?? 0) + 1
  const [, number = '1'] = /\/audit(?:\/([0-9]+))?$/.exec(inForce?.origin ?? '') ?? []
  const origin = originOf(names, Number(number) + 1)
  await keys.begin({ tree, origin, reason }, [entry(origin)])
  return origin
}
