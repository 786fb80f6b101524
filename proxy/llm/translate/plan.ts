import type { ApiWire } from '../dialects/dialect.ts'
import { readChatRequest } from './chat/read-request.ts'
import { writeChatRequest } from './chat/write-request.ts'
import { type TranslationFault, TranslationNotes } from './losses.ts'
import { readMessagesRequest } from './messages/read-request.ts'
import { writeMessagesRequest } from './messages/write-request.ts'
import type { RequestReading } from './model/reading.ts'
import type { ModelRequest } from './model/request.ts'
import type { TargetModel } from './model/target.ts'
import { type NamedTool, ToolNames } from './names.ts'
import { ExactJson } from './request/exact-json.ts'
import { withoutDropped } from './request/extras.ts'
import { readResponsesRequest } from './responses/read-request.ts'
import { countedOf, writeResponsesRequest } from './responses/write-request.ts'
import { ReasoningSeal } from './seal.ts'

/** All of these can go to a thread. */
export interface TranslationInput {
  readonly from: ApiWire
  readonly body: Uint8Array
  /** The key of a {@link ReasoningSeal}. */
  readonly sealKey: Uint8Array
  readonly target: TargetModel
  /** True: its tokens are to be counted, and no more. Default false. */
  readonly isCount?: boolean
}

/** A request in the other wire, or why it cannot be told. */
export type TranslationResult =
  | { readonly faults: readonly TranslationFault[] }
  | {
      readonly faults: null
      readonly body: Uint8Array
      /** The names of what is left out, and of what is told in another form, sorted. */
      readonly dropped: readonly string[]
      readonly carried: readonly string[]
      readonly tools: readonly NamedTool[]
      /** The stop words that the target is not told of. */
      readonly stopWords: readonly string[]
      readonly toldStopWords: readonly string[]
      readonly isStream: boolean
      readonly wantsUsage: boolean
    }

type RequestReader = (body: unknown, reading: RequestReading) => ModelRequest

const READERS: Readonly<Record<ApiWire, RequestReader>> = {
  messages: readMessagesRequest,
  chat: readChatRequest,
  responses: readResponsesRequest,
}

type RequestWriter = (request: ModelRequest, target: TargetModel, notes: TranslationNotes) => unknown

const WRITERS: Readonly<Record<ApiWire, RequestWriter>> = {
  messages: writeMessagesRequest,
  chat: writeChatRequest,
  responses: writeResponsesRequest,
}

/** Translates a request to another wire (docs/translation.md). */
export function translateRequest({
  from,
  body,
  sealKey,
  target,
  isCount = false,
}: TranslationInput): TranslationResult {
  const notes = new TranslationNotes(target.accepted)
  const names = new ToolNames()
  const exact = new ExactJson()
  const seal = new ReasoningSeal(Buffer.from(sealKey))
  const text = Buffer.from(body.buffer, body.byteOffset, body.length).toString()
  const read = READERS[from](exact.parse(text), {
    notes,
    names,
    parse: (part) => exact.parse(part),
    openReasoning: (sealed) => seal.open(sealed, target),
  })
  const request = withoutDropped(read, target.drop, notes)
  const told = WRITERS[target.wire](request, target, notes)
  if (notes.faults.length > 0) return { faults: notes.faults }
  const endsHere = notes.carried.has('stop_words')
  return {
    faults: null,
    body: Buffer.from(exact.write(isCount ? countedOf(told) : told)),
    dropped: [...notes.dropped].toSorted(),
    carried: [...notes.carried].toSorted(),
    tools: names.named(),
    stopWords: endsHere ? request.stopWords : [],
    toldStopWords: endsHere ? [] : request.stopWords,
    isStream: request.stream,
    wantsUsage: request.wantsUsage,
  }
}
