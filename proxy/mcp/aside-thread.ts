// A thread that does what strangers can make long (proxy/mcp/aside/threads.ts): each of its tasks may take
// a second.
import { parentPort } from 'node:worker_threads'
import { Refusal } from '../../plugins/refusal.ts'
import type { McpThreadRequest, McpThreadResponse, McpThreadTasks } from './aside/messages.ts'
import { bufferOf, parseExactObject, readParams } from './aside/read.ts'
import { parseDefinition } from './pinning/pinned-definition.ts'
import { changesBetween } from './pinning/tool-changes.ts'
import { judgeTool } from './pinning/tool-definition.ts'
import { argumentsVerdict } from './schema/arguments.ts'
import { NOT_CHECKED } from './schema/check.ts'
import { itemsIn, knownListIn, truncateMessage } from './upstream/large-message.ts'
import { readMessage } from './upstream/message.ts'

const port = parentPort
if (!port) throw new Error('proxy/mcp/aside-thread.ts runs as a worker thread only')

const TASKS: McpThreadTasks = {
  readParams,
  judgeTool,
  changesBetween,
  judgeArguments: ({ digest, definition, args }) => {
    const inputSchema = () => parseExactObject(definition)?.inputSchema
    const value = parseExactObject(args)
    return value ? argumentsVerdict({ digest, inputSchema }, value) : { fault: NOT_CHECKED, small: false }
  },
  readMessage: ({ bytes, traces }) => truncateMessage(bufferOf(bytes), traces),
  listItems: ({ bytes, ...of }) => itemsIn(readMessage(bufferOf(bytes)), of),
  knownList: ({ bytes, member }) => knownListIn(readMessage(bufferOf(bytes)), member),
  takeApart: (definition) => {
    const { headerParams, listed, object } = parseDefinition(Buffer.from(definition))
    return { headerParams, listed, spans: object.spans }
  },
}

port.on('message', (question: McpThreadRequest) => port.postMessage(answer(question)))

function answer({ task, input }: McpThreadRequest): McpThreadResponse {
  try {
    // Proven by proxy/mcp/aside/threads.ts, which alone asks: the input is that of the task.
    const work = TASKS[task] as (input: McpThreadRequest['input']) => unknown
    return { kind: 'done', value: work(input) }
  } catch (error) {
    if (error instanceof Refusal) return { kind: 'refused', reason: error.reason, message: error.message }
    return { kind: 'failed', message: error instanceof Error ? error.message : String(error) }
  }
}
