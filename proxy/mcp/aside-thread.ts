// The tasks of the threads of proxy/mcp/aside/aside.ts: strangers can make each take a second.
import type { McpThreadTasks } from './aside/messages.ts'
import { bufferOf, parseExactObject, readParams } from './aside/read.ts'
import { parseDefinition } from './pinning/pinned-definition.ts'
import { changesBetween } from './pinning/tool-changes.ts'
import { judgeTool } from './pinning/tool-definition.ts'
import { argumentsVerdict } from './schema/arguments.ts'
import { NOT_CHECKED } from './schema/check.ts'
import { itemsIn, knownListIn } from './upstream/large-message.ts'
import { readMessage } from './upstream/message.ts'

export const openTasks = (): McpThreadTasks => ({
  readParams,
  judgeTool,
  changesBetween,
  judgeArguments: ({ digest, definition, args }) => {
    const inputSchema = () => parseExactObject(definition)?.inputSchema
    const value = parseExactObject(args)
    return value ? argumentsVerdict({ digest, inputSchema }, value) : { fault: NOT_CHECKED, small: false }
  },
  listItems: ({ bytes, ...of }) => itemsIn(readMessage(bufferOf(bytes)), of),
  knownList: ({ bytes, member }) => knownListIn(readMessage(bufferOf(bytes)), member),
  takeApart: (definition) => {
    const { headerParams, listed, modernOutput, object } = parseDefinition(Buffer.from(definition))
    return { headerParams, listed, modernOutput, spans: object.spans }
  },
})
