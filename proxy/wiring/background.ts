import { databaseLocation } from '../../db/engine.ts'
import { followedBundleNames } from '../../db/principals/spiffe.ts'
import { proposalDetail } from '../admin/conditions/propose.ts'
import { trustBundleOf } from '../admin/principals/enroll.ts'
import { putFollowedBundle } from '../admin/principals/trusted-cas.ts'
import { SEGMENT_ROWS } from '../archive/options.ts'
import { type ArchiveTask, archiveOnSchedule } from '../archive/schedule.ts'
import { sinkOfFollower } from '../export/options.ts'
import { followBundles } from '../federation/follow-bundles.ts'
import { federationTask } from '../federation/publish.ts'
import { inspector } from '../mcp/pinning/inspect.ts'
import { followPeopleCertificate } from '../people/certificate.ts'
import { anchorName } from '../proofs/anchors/anchors.ts'
import { anchorCheckpoints } from '../proofs/anchors/task.ts'
import { watchSealing } from '../proofs/sealing-watch.ts'
import { recordStates } from '../proofs/state-recorder.ts'
import { alertLimits } from '../tasks/alert-limits.ts'
import { countRows } from '../tasks/count-rows.ts'
import { terminateRevokedStreams } from '../tasks/cut-revoked.ts'
import { endStops } from '../tasks/end-stops.ts'
import { expireApprovals } from '../tasks/expire-approvals.ts'
import { expireProposals } from '../tasks/expire-proposals.ts'
import { followAuthority, renewServerCertificate } from '../tasks/follow-authority.ts'
import { followersTask } from '../tasks/follow-ledger.ts'
import {
  pruneGrants,
  pruneLimitMeters,
  prunePeople,
  pruneProviderStates,
  writeProviderStates,
} from '../tasks/prune.ts'
import { refreshMcp } from '../tasks/refresh-mcp.ts'
import { refreshModels } from '../tasks/refresh-models.ts'
import { revokeAccounts } from '../tasks/revoke-accounts.ts'
import type { RoundsTask } from '../tasks/rounds.ts'
import { type PeriodicTask, runTasks } from '../tasks/rounds.ts'
import { ledgerTasks, recordSummaries, sealLedger } from '../tasks/tend-ledger.ts'
import { watchClock } from '../tasks/watch-clock.ts'
import { watchDisk } from '../tasks/watch-disk.ts'
import { type Configuration, definitionFlags } from './configuration.ts'
import type { GatewayServices } from './services.ts'

/**
 * Starts the background tasks, which run whether or not requests come. Returns the function that stops them;
 * its promise resolves when no task needs the database or the ledger any more.
 */
export function startTasks(services: GatewayServices, inForce: () => Configuration): () => Promise<unknown> {
  const rounds: readonly RoundsTask[] = [
    mcpRefreshTask(services, inForce),
    modelRefreshTask(services, inForce),
    sealLedger(services.sealer, services.dataDirectory.database, inForce().proofs.seal_interval_ms),
    anchorTask(services, inForce),
    countTask(services),
    stateTask(services, inForce),
    services.mounted.archive(),
    followTask(services, inForce),
    bundleTask(services, inForce),
    ...federation(services),
  ]
  const stopTimers = runTasks([...periodicTasks(services, inForce), ...rounds], services.logs.log)
  return () => {
    stopTimers()
    return Promise.all(rounds.map((task) => task.stop())).then(() =>
      Promise.all([services.exported.close(), services.notified.close()]),
    )
  }
}

function periodicTasks(services: GatewayServices, inForce: () => Configuration): readonly PeriodicTask[] {
  const { dataDirectory, listeners, drain, parkedCalls, clock } = services
  const { database } = dataDirectory
  const configDigest = (): string => inForce().digest
  return [
    ...ledgerTasks({ ...services, database, configDigest }),
    expireProposals({ ...services, database, configDigest, detailOf: proposalDetail }),
    expireApprovals({ ...services, database, configDigest }),
    recordSummaries(services),
    writeProviderStates(services.states),
    pruneProviderStates({ ...services, database }),
    pruneLimitMeters({ ...services, database }),
    alertLimits({ ...services, database, configDigest }),
    endStops({ ...services, database, configDigest }),
    pruneGrants({ ...services, database }),
    revokeAccounts({ database, revokeDue: services.accounts.revokeDue }),
    watchDisk(services.disk),
    watchClock(services.clockWatch),
    watchSealing(services.sealing),
    renewServerCertificate(dataDirectory, listeners.current, clock),
    ...(dataDirectory.settings.people ? [prunePeople({ ...services, database })] : []),
    ...(dataDirectory.settings.people?.tls
      ? [followPeopleCertificate(dataDirectory.settings, listeners.current)]
      : []),
    followAuthority(services.followAuthority),
    terminateRevokedStreams([drain.calls, parkedCalls], clock),
  ]
}

function mcpRefreshTask(
  { dataDirectory, ledger, mcp, clock, logs }: GatewayServices,
  inForce: () => Configuration,
) {
  const { database } = dataDirectory
  return refreshMcp({
    database,
    ledger,
    configDigest: () => inForce().digest,
    inspect: () => inspector(database, mcp.upstream(inForce().mcp), clock, definitionFlags(inForce())),
    intervalS: () => inForce().mcp.refresh_interval_s,
    changed: mcp.changed,
    clock,
    log: logs.log,
  })
}

const modelRefreshTask = (
  { catalogue, upstream, providerKeys, clock, logs }: GatewayServices,
  inForce: () => Configuration,
): RoundsTask =>
  refreshModels({
    ...{ catalogue, upstream, providerKeys, clock, log: logs.log },
    providers: () => inForce().llm.providers,
  })

const anchorTask = (
  { dataDirectory, ledger, metrics, clock, logs }: GatewayServices,
  inForce: () => Configuration,
): RoundsTask =>
  anchorCheckpoints({
    database: dataDirectory.database,
    ledger,
    anchors: () => inForce().proofs.anchors,
    onFailure: (anchor) => metrics.anchorFailures.inc({ anchor }),
    clock,
    log: logs.log,
  })

const stateTask = (
  { dataDirectory, ledger, clock, logs }: GatewayServices,
  inForce: () => Configuration,
): RoundsTask =>
  recordStates({
    database: dataDirectory.database,
    ledger,
    configDigest: () => inForce().digest,
    rows: () => inForce().archive?.segment.rows ?? SEGMENT_ROWS,
    clock,
    log: logs.log,
  })

const countTask = ({ dataDirectory, ledger, metrics, clock }: GatewayServices): RoundsTask =>
  countRows({
    database: dataDirectory.database,
    ledger,
    clock,
    onSpends: (spends) => {
      for (const { provider, microusd, unpriced_calls: unpriced } of spends) {
        metrics.cost.inc({ provider }, microusd)
        if (unpriced > 0) metrics.unpriced.inc({ provider }, unpriced)
      }
    },
  })

/** Has sinks and those who are told of rows get them. */
const followTask = (
  { dataDirectory, ledger, metrics, exported, notified, clock, logs }: GatewayServices,
  inForce: () => Configuration,
): RoundsTask =>
  followersTask({
    ...{ database: dataDirectory.database, ledger, clock, log: logs.log },
    followers: async () => [
      ...(await exported.followers(inForce().exports)),
      ...notified.readers(inForce().notify),
    ],
    onFailure: (name) => {
      const sink = sinkOfFollower(name)
      if (sink !== null) metrics.exportFailures.inc({ sink })
    },
  })

/** Makes the task of the archive, which an operator may ask for work without the others. */
export function archiveTask(
  {
    dataDirectory,
    ledger,
    clock,
    logs,
  }: Pick<GatewayServices, 'dataDirectory' | 'ledger' | 'clock' | 'logs'>,
  inForce: () => Configuration,
): ArchiveTask {
  const { database, settings } = dataDirectory
  return archiveOnSchedule({
    database,
    ledger,
    location: databaseLocation(settings.databaseUrl),
    get authority() {
      return dataDirectory.authority
    },
    options: () => inForce().archive,
    anchors: () => inForce().proofs.anchors.map(anchorName),
    configDigest: () => inForce().digest,
    clock,
    log: logs.log,
  })
}

function bundleTask(
  { dataDirectory, ledger, bundleStandings, clock, logs }: GatewayServices,
  inForce: () => Configuration,
): RoundsTask {
  const { database } = dataDirectory
  return followBundles({
    sources: () => inForce().pin.trust_bundles,
    followed: () => followedBundleNames(database),
    casOf: async (pem, at) => (await trustBundleOf(pem, at)).pem,
    put: (name, pem, { grace_hours: hours }) => {
      const { digest: configDigest, pin } = inForce()
      const context = { database, ledger, configDigest, rotationGraceHours: pin.rotation_grace_hours }
      return putFollowedBundle(context, { name, pem, hours, at: clock() })
    },
    leads: () => database.leads('follow-bundles'),
    standings: bundleStandings,
    clock,
    log: logs.log,
  })
}

function federation({ dataDirectory, ledger, keys, issuer, clock, logs }: GatewayServices): RoundsTask[] {
  const { settings, database } = dataDirectory
  if (settings.federationUrl === null) return []
  return [
    federationTask({ database, ledger, keys, url: settings.federationUrl, issuer, clock, log: logs.log }),
  ]
}
