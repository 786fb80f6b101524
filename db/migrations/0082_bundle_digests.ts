import type { Kysely } from 'kysely'
import { caDigests, printDigests } from '../principals/ca-texts.ts'

interface BundleDatabase {
  internal_agents: {
    readonly agent_id: string
    readonly spiffe_bundle: string | null
    readonly spiffe_bundle_digests: string | null
    readonly previous_spiffe_bundles: string | null
  }
}

/**
 * The digests of the CAs that an agent's own bundles hold, as rows say them: the gateway compares the texts
 * with them. Takes the texts that are there; from then on an edited one vouches for nobody.
 */
export async function up(any: Kysely<unknown>): Promise<void> {
  await any.schema.alterTable('internal_agents').addColumn('spiffe_bundle_digests', 'text').execute()
  const db = any as Kysely<BundleDatabase>
  const agents = await db
    .selectFrom('internal_agents')
    .select(['agent_id', 'spiffe_bundle', 'previous_spiffe_bundles'])
    .where((row) =>
      row.or([row('spiffe_bundle', 'is not', null), row('previous_spiffe_bundles', 'is not', null)]),
    )
    .execute()
  for (const { agent_id: id, spiffe_bundle: pem, previous_spiffe_bundles: before } of agents) {
    const previous: readonly (readonly [string, string])[] = JSON.parse(before ?? '[]')
    await db
      .updateTable('internal_agents')
      .set({
        spiffe_bundle_digests: pem === null ? null : printDigests(caDigests(pem)),
        previous_spiffe_bundles:
          before && JSON.stringify(previous.map(([text, until]) => [text, until, caDigests(text)])),
      })
      .where('agent_id', '=', id)
      .execute()
  }
}
