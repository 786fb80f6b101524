/** A stream of an API, made of pieces of one text. */
export interface DeltaDialect {
  readonly name: string
  readonly delta: (piece: string, block: number) => readonly Buffer[]
  readonly end: readonly Buffer[]
  /** Returns the text that the events of these bytes tell. */
  readonly read: (bytes: Buffer) => string
}

const event = (data: object | string, name?: string): Buffer =>
  Buffer.from(
    `${name === undefined ? '' : `event: ${name}\n`}data: ${typeof data === 'string' ? data : JSON.stringify(data)}\n\n`,
  )

const reading =
  (pick: (data: Record<string, never>) => string | undefined) =>
  (bytes: Buffer): string =>
    [...bytes.toString().matchAll(/^data: (\{.*)$/gm)]
      .map(([, data = '']) => pick(JSON.parse(data)) ?? '')
      .join('')

const typed = (type: string, more: object): Buffer => event({ type, ...more }, type)

const messages = (name: string, type: string, member: string): DeltaDialect => ({
  name,
  delta: (piece, index) => [typed('content_block_delta', { index, delta: { type, [member]: piece } })],
  end: [typed('content_block_stop', { index: 0 }), typed('message_stop', {})],
  read: reading((data: { delta?: Record<string, string> }) => data.delta?.[member]),
})

const chat = (name: string, delta: (piece: string) => object): DeltaDialect => ({
  name,
  delta: (piece, index) => [
    event({
      id: 'chatcmpl-A',
      object: 'chat.completion.chunk',
      choices: [{ index, delta: delta(piece), finish_reason: null }],
    }),
  ],
  end: [
    event({ id: 'chatcmpl-A', choices: [{ index: 0, delta: {}, finish_reason: 'stop' }] }),
    event('[DONE]'),
  ],
  read: reading(
    (data: {
      choices?: { delta: { content?: string; tool_calls?: { function: { arguments: string } }[] } }[]
    }) => {
      const { content, tool_calls: tools } = data.choices?.[0]?.delta ?? {}
      return content ?? tools?.[0]?.function.arguments
    },
  ),
})

const responses = (name: string, type: string): DeltaDialect => ({
  name,
  delta: (delta, index) => [typed(type, { item_id: 'msg_A', output_index: index, content_index: 0, delta })],
  end: [typed('response.completed', { response: { id: 'resp_1', output: [] } })],
  read: reading((data: { delta?: string }) => data.delta),
})

/** Texts, thinking and arguments of tools, in the three APIs. */
export const DELTAS: readonly DeltaDialect[] = [
  chat('chat text', (content) => ({ content })),
  chat('chat tool', (piece) => ({ tool_calls: [{ index: 0, function: { arguments: piece } }] })),
  messages('messages text', 'text_delta', 'text'),
  messages('messages thinking', 'thinking_delta', 'thinking'),
  messages('messages tool', 'input_json_delta', 'partial_json'),
  responses('responses text', 'response.output_text.delta'),
  responses('responses tool', 'response.function_call_arguments.delta'),
]

export const events = ({ delta, end }: DeltaDialect, pieces: readonly string[]): readonly Buffer[] => [
  ...pieces.flatMap((piece) => delta(piece, 0)),
  ...end,
]
