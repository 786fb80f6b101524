import { readFileSync, statSync } from 'node:fs'
import type { DigestedState } from '../../db/ledger/authority/ledger-state.ts'
import type { TreeVerdict } from '../../db/ledger/tree/inspect.ts'
import type { LogTrust, StampTally, WitnessSummary } from '../../db/ledger/tree/trusted.ts'
import {
  exitCodeOf,
  type LedgerInspection,
  type ShowRows,
  unreadSegments,
} from '../../db/ledger/verify/inspect.ts'
import { isSound, type RecomputationReport } from '../../db/ledger/verify/recompute.ts'
import type { BadRow } from '../../db/ledger/verify/verify.ts'
import { escapeHiddenJson } from '../../proxy/visible.ts'
import { type CommandVerb, verbOf, WrongUsage } from '../command.ts'
import { print } from '../print.ts'
import { type ArchiveInspection, inspectArchive } from './archive.ts'
import { receiptAt } from './file.ts'
import { SILENT, VerifyProgress } from './progress.ts'
import { type ReceiptVerdict, verifyReceipt } from './receipt.ts'
import { TRUST_OPTIONS, trustedIn } from './trusted.ts'

/** The report of an inspection, for a person. */
function reportLines({
  verdict,
  findings,
  cutShort,
  notes,
  authority,
  tree,
}: LedgerInspection): readonly string[] {
  const { rows, streams, first_bad: bad, open_decisions: open } = verdict
  const lines = findings.map((finding) => `BAD: ${finding}`)
  if (bad) lines.unshift(`BAD: ${problemOf(bad)}; ${rows} rows before it are whole`)
  for (const problem of tree?.problems ?? []) lines.push(`BAD: ${problem}`)
  for (const cut of [cutShort, tree?.cutShort ?? null]) if (cut !== null) lines.push(`CUT SHORT: ${cut}`)
  const counted = `${rows} rows in ${counts(streams, 'stream')}`
  const isWhole = lines.length === 0
  if (!bad) lines.push(`${isWhole ? 'whole' : 'rows that follow each other'}: ${counted}`)
  if (open > 0) lines.push(`${open} allowed decisions have no outcome (yet)`)
  if (tree) lines.push(...treeLines(tree))
  if (authority) lines.push(...authorityLines(authority))
  lines.push(...notes)
  if (!isWhole || (authority && !isSound(authority))) return lines
  return [...lines, ...(tree ? [...unseenLines(tree), conclusion(tree)] : [NOT_WITNESSED])]
}

function treeLines({ origin, checkpoints, tiles, sealed, behind, stamps }: TreeVerdict): readonly string[] {
  const found = [counts(checkpoints, 'checkpoint'), ...(tiles > 0 ? [counts(tiles, 'tile')] : [])]
  const counted = `${found.join(' and ')} of ${origin} fit, up to ${sealed} rows`
  const late = behind > 0 ? [`${behind} rows are behind the last checkpoint`] : []
  return [counted, ...late, ...stampLines(stamps)]
}

const stampLines = ({ stamped, unchecked }: Stamps): readonly string[] => [
  ...stamped.map(
    ({ name, at, size, count }) =>
      `${counts(count, 'time stamp')} by ${name}, the last of the checkpoint of ${size} rows at ${at}`,
  ),
  ...(unchecked > 0 ? [`${counts(unchecked, 'time stamp')} whose authority was not checked`] : []),
]

const counts = (count: number, what: string): string => `${count} ${what}${count === 1 ? '' : 's'}`

type Stamps = Omit<StampTally, 'problems'>

interface ReportConclusion {
  readonly vouched: boolean
  readonly kept: number
  readonly witnessed: readonly WitnessSummary[]
  readonly stamps: Stamps
}

// A witness cosigns, and an authority stamps, any log: they do not say which one is meant.
const NOT_WITNESSED = 'CONSISTENT, NOT WITNESSED'

/** The last line, if there is no fault: who outside has seen the rows. */
function conclusion({ vouched, kept, witnessed, stamps }: ReportConclusion): string {
  if (!vouched) return NOT_WITNESSED
  const seen = `${saidBy('WITNESSED', witnessed)}${saidBy('STAMPED', stamps.stamped)}`
  if (seen !== '') return `VERIFIED${seen}`
  return `VERIFIED, ${kept > 0 ? `KEPT outside as a checkpoint of ${kept} rows` : 'SEEN by nobody outside'}`
}

/** The rows after those that somebody outside has seen, if there are any of both. */
function unseenLines({ sealed, behind, kept, witnessed, stamps, vouched }: TreeVerdict): readonly string[] {
  const seen = Math.max(kept, ...[...witnessed, ...stamps.stamped].map(({ size }) => size))
  const unseen = sealed + behind - seen
  return vouched && seen > 0 && unseen > 0
    ? [`the last ${counts(unseen, 'row')}: SEEN by nobody outside`]
    : []
}

function saidBy(what: string, whom: readonly WitnessSummary[]): string {
  const all = whom.map(({ name, at }) => `${name} at ${at}`).join(', ')
  return all === '' ? '' : `, ${what} by ${all}`
}

/** The report of a receipt. */
const receiptLines = ({ problem, lines, ...verdict }: ReceiptVerdict): readonly string[] =>
  problem === null
    ? [...lines, ...stampLines(verdict.stamps), conclusion(verdict)]
    : [...lines, `BAD: ${problem}`]

const problemOf = ({ stream, seq, problem }: BadRow): string => `row ${stream}:${seq} ${problem}`

function authorityLines(found: RecomputationReport): readonly string[] {
  const why = Object.entries(found.not_recomputable).toSorted(([one], [other]) => (one < other ? -1 : 1))
  const skipped = why.reduce((sum, [, count]) => sum + count, 0)
  const because = why.map(([text, count]) => `${count} ${text}`).join(', ')
  const counts = [
    `decisions recomputed ${found.recomputed}`,
    `disagree ${found.disagree}`,
    `not recomputable ${skipped}${skipped > 0 ? ` (why: ${because})` : ''}`,
    `allowed without outcome ${found.allowed_without_outcome}`,
    `outcomes without a decision ${found.outcomes_without_decision}`,
  ]
  const { problems } = found
  const total = found.disagree + found.allowed_without_outcome + found.outcomes_without_decision
  const more = total > problems.length ? [`and ${total - problems.length} more`] : []
  return [counts.join(', '), ...problems.map((bad) => `DISAGREES: ${problemOf(bad)}`), ...more]
}

/** The report of an inspection, for a program (docs/ledger.md#verifying). */
function asJson({ verdict, findings, cutShort, notes, authority, tree }: LedgerInspection): object {
  return {
    ...verdict,
    ...(findings.length > 0 && { findings }),
    ...(cutShort !== null && { cut_short: cutShort }),
    ...(notes.length > 0 && { notes }),
    ...(authority && { authority }),
    ...(tree && { tree }),
  }
}

const UNREADABLE = 9

const isFolder = (source: string): boolean =>
  statSync(source, { throwIfNoEntry: false })?.isDirectory() ?? false

/** Prints what was found of an archive, and of the rows behind it. Returns the exit code. */
function printArchive(archive: ArchiveInspection, rest: LedgerInspection | null, json: boolean): number {
  const { files, skipped, segments, said, end } = archive
  const findings = [...archive.findings, ...said.findings(archive)]
  const inspections = [...segments.map(({ inspection }) => inspection), ...(rest ? [rest] : [])]
  const { ahead: older, notes } = unnamedFiles(archive, rest)
  const ahead = [...older, ...(rest || archive.cutShort === null ? [] : [archive.cutShort])]
  const codes = [findings.length > 0 ? 2 : 0, ahead.length > 0 ? 4 : 0, ...inspections.map(exitCodeOf)]
  const code = [2, 3, 4, 5].find((one) => codes.includes(one)) ?? 0
  const unread = skipped.reduce((sum, { first, last }) => sum + last + 1 - first, 0)
  if (json) {
    const read = segments.map(({ file, sha256, inspection }) => ({ file, sha256, ...asJson(inspection) }))
    const found = {
      ...{ segments: read, not_read: unread, findings: [...findings, ...ahead], notes },
      end: end?.sha256 ?? null,
    }
    print(escapeHiddenJson(JSON.stringify({ ...(rest && asJson(rest)), archive: found })))
    return code
  }
  print(...findings.map((finding) => `BAD: ${finding}`), ...ahead.map((one) => `CUT SHORT: ${one}`), ...notes)
  for (const { file, inspection } of segments)
    if (exitCodeOf(inspection) !== 0) print(...reportLines(inspection).map((line) => `${file}: ${line}`))
  const rows = segments.reduce((sum, { inspection }) => sum + inspection.verdict.rows, 0)
  const [from, to] = [files[0]?.first, files.at(-1)?.last]
  print(`${counts(files.length, 'segment')}: leaves ${from} to ${to}, ${rows} rows`)
  if (unread > 0)
    print(
      `not read: ${unread} rows in ${counts(skipped.length, 'segment')}, which are under the kept checkpoint`,
    )
  const last = segments.at(-1)
  // Read by what names them.
  const known = unreadSegments(rows + unread, files.length)
  if (rest) print(...reportLines({ ...rest, notes: rest.notes.filter((note) => note !== known) }))
  else if (code === 0 && last) print(...reportLines(last.inspection).slice(-1))
  return code
}

/**
 * Says which files no row of the database names: it is from before them, or one is just being moved. `ahead`: those with
 * rows that it does not have.
 */
function unnamedFiles({ said, segments }: ArchiveInspection, rest: LedgerInspection | null) {
  const unnamed = rest ? said.unnamed(segments) : []
  const { sealed = Number.POSITIVE_INFINITY, behind = 0 } = rest?.tree ?? {}
  const isAhead = ({ last }: (typeof unnamed)[number]): boolean => last >= sealed + behind
  return {
    ahead: unnamed
      .filter(isAhead)
      .map(({ file }) => `${file} has rows that are not in the database, which is older than the archive`),
    notes: unnamed
      .filter((one) => !isAhead(one))
      .map(
        ({ file }) =>
          `${file}: no row says that it is archived; the database is older, or it is just being moved`,
      ),
  }
}

interface VerifyDefinition {
  readonly name: string
  readonly takes: string
  readonly make?: string
  readonly about: string
  /** Verifies anything but a receipt. Throws one sentence if it cannot be read. */
  readonly inspect: (
    source: string,
    authority: boolean,
    trusted: LogTrust,
    shown: ShowRows,
    before?: DigestedState,
  ) => Promise<LedgerInspection>
}

/** The verb that verifies; its maker says what it can read. */
export const verifyingVerb = ({ inspect, ...named }: VerifyDefinition): CommandVerb =>
  verbOf({
    ...named,
    options: {
      authority: { type: 'boolean', description: 'recompute every decision of an export too' },
      ...TRUST_OPTIONS,
      archive: {
        type: 'string',
        value: 'DIR',
        description: 'verify the segments in a folder too, and compare them with what the rows say of them',
      },
      body: { type: 'string', value: 'FILE', description: 'the body that a receipt must be about' },
      json: { type: 'boolean', description: 'print what was found as one JSON object' },
    },
    notes: `Exit code, the first that fits: 9 not a ledger, or not readable; 2 a row was changed, is missing or is there
twice, schema or tables are not what they must be, or the body is another; 3 a tile, a checkpoint, a signature, a time stamp or a
proof does not fit; 4 rows are missing at the end; 5 a decision does not follow from what the rows before it say; 0 whole.
A row is named as stream:seq. Without a key or a checkpoint from elsewhere the best verdict is CONSISTENT, NOT WITNESSED: who
owns the database and its keys can rewrite all of it. --since reads the rows behind the last state before the checkpoint, and
proves by the tree's hashes that those before it are the ones which the checkpoint is over.`,
    failing: { as: 'verify', usage: UNREADABLE, failed: UNREADABLE },
    run: async ({ authority = false, json = false, body, archive: named, ...given }, [source, ...more]) => {
      if (source === undefined || more.length > 0) throw new WrongUsage('name one file')
      const progress = json ? SILENT : new VerifyProgress()
      const folder = named ?? (isFolder(source) ? source : undefined)
      if (folder !== undefined) {
        const archive = await inspectArchive(folder, progress, () => trustedIn(given))
        const { said, end, segments } = archive
        const shown: ShowRows = (rows, total) => said.watched(progress.show(rows, total))
        const trusted = trustedIn(given)
        // Compared with a segment already.
        const trust = segments.length > 0 ? { ...trusted, since: undefined } : trusted
        const rest =
          source === folder ? null : await inspect(source, authority, trust, shown, end ?? undefined)
        return printArchive(archive, rest, json)
      }
      const trusted = trustedIn(given)
      const receipt = receiptAt(source)
      if (receipt) {
        if (given.since !== undefined) throw new WrongUsage('--since is for rows, and this is a receipt')
        const verdict = await verifyReceipt(receipt, trusted, body === undefined ? null : readFileSync(body))
        print(...(json ? [escapeHiddenJson(JSON.stringify(verdict))] : receiptLines(verdict)))
        return verdict.code
      }
      if (body !== undefined) throw new WrongUsage('--body needs a receipt')
      const inspection = await inspect(source, authority, trusted, progress.show)
      print(...(json ? [escapeHiddenJson(JSON.stringify(asJson(inspection)))] : reportLines(inspection)))
      return exitCodeOf(inspection)
    },
  })
