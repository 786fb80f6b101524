import { readFileSync } from 'node:fs'
import type { LogTrust } from '../../db/ledger/tree/trusted.ts'
import { exitCodeOf, type LedgerInspection } from '../../db/ledger/verify/inspect.ts'
import { escapeHiddenJson } from '../../proxy/visible.ts'
import { type CommandVerb, verbOf, WrongUsage } from '../command.ts'
import { print } from '../print.ts'
import { receiptAt } from './file.ts'
import { verifyReceipt } from './receipt.ts'
import { asJson, receiptLines, reportLines } from './report.ts'
import { TRUST_OPTIONS, trustedIn } from './trusted.ts'

const UNREADABLE = 9

interface VerifyDefinition {
  readonly name: string
  readonly takes: string
  readonly make?: string
  readonly about: string
  /** Verifies anything but a receipt. Throws one sentence if it cannot be read. */
  readonly inspect: (source: string, authority: boolean, trusted: LogTrust) => Promise<LedgerInspection>
}

/** The verb that verifies; its maker says what it can read. */
export const verifyingVerb = ({ inspect, ...named }: VerifyDefinition): CommandVerb =>
  verbOf({
    ...named,
    options: {
      authority: { type: 'boolean', description: 'recompute every decision of an export too' },
      ...TRUST_OPTIONS,
      body: { type: 'string', value: 'FILE', description: 'the body that a receipt must be about' },
      json: { type: 'boolean', description: 'print what was found as one JSON object' },
    },
    notes: `Exit code, the first that fits: 9 not a ledger, or not readable; 2 a row was changed, is missing or is there
twice, schema or tables are not what they must be, or the body is another; 3 a tile, a checkpoint, a signature, a time stamp or a
proof does not fit; 4 rows are missing at the end; 5 a decision does not follow from what the rows before it say; 0 whole.
A row is named as stream:seq. Without a key or a checkpoint from elsewhere the best verdict is CONSISTENT, NOT WITNESSED: who
owns the database and its keys can rewrite all of it.`,
    failing: { as: 'verify', usage: UNREADABLE, failed: UNREADABLE },
    run: async ({ authority = false, json = false, body, ...given }, [source, ...rest]) => {
      if (source === undefined || rest.length > 0) throw new WrongUsage('name one file')
      const trusted = trustedIn(given)
      const receipt = receiptAt(source)
      if (receipt) {
        const verdict = await verifyReceipt(receipt, trusted, body === undefined ? null : readFileSync(body))
        print(...(json ? [escapeHiddenJson(JSON.stringify(verdict))] : receiptLines(verdict)))
        return verdict.code
      }
      if (body !== undefined) throw new WrongUsage('--body needs a receipt')
      const inspection = await inspect(source, authority, trusted)
      print(...(json ? [escapeHiddenJson(JSON.stringify(asJson(inspection)))] : reportLines(inspection)))
      return exitCodeOf(inspection)
    },
  })
