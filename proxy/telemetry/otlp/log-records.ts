import { type AttributeValue, attributesText, nanoseconds } from './encode.ts'
import { ATTRIBUTES as NAME } from './names.ts'
import type { CallSpanIds, SpannedCall } from './spans.ts'

/** `SeverityNumber`, by the status of the answer. */
const SEVERITY = { info: [9, 'INFO'], warn: [13, 'WARN'], error: [17, 'ERROR'] } as const

/** The members of a line that go on. Addresses, the caller's own ids and names that the ledger does not say stay. */
const LINE_NAMES = [
  ...[
    'method',
    'path',
    'status',
    'via',
    'reason',
    'by',
    'tool',
    'resource',
    'provider',
    'ending',
    'bytes',
    'ms',
  ],
] as const

/** Writes the line of a call as a log record, JSON text. `flags`: the trace's. */
export function logRecord(
  { call, endedMs }: SpannedCall,
  { traceId, spanId, flags }: CallSpanIds & { readonly flags: number },
): string {
  const line = call.line()
  const [severityNumber, severityText] = SEVERITY[severityOf(call)]
  const own: Record<string, AttributeValue> = {}
  for (const name of LINE_NAMES) own[name] = scalarIn(line[name])
  const at = nanoseconds(endedMs)
  const named = {
    path: call.route,
    [NAME.user]: call.facts.principal?.ref,
    [NAME.requestId]: call.facts.id,
    [NAME.stream]: call.receipt?.stream,
    [NAME.seq]: call.receipt?.seq,
  }
  const trace = traceId === '' ? '' : `,"traceId":"${traceId}","spanId":"${spanId}","flags":${flags}`
  return `{"timeUnixNano":"${at}","observedTimeUnixNano":"${at}","severityNumber":${severityNumber},"severityText":"${severityText}","body":{"stringValue":"request"},"attributes":${attributesText(own, named)}${trace}}`
}

const severityOf = ({ status, reason }: SpannedCall['call']): keyof typeof SEVERITY => {
  if (status >= 500) return 'error'
  return reason === null ? 'info' : 'warn'
}

const scalarIn = (value: unknown): string | number | boolean | null =>
  typeof value === 'string' || typeof value === 'number' || typeof value === 'boolean' ? value : null
