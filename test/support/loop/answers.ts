import { HOSTILE_MODELS, HOSTILE_SERVERS } from '../../siege/hostile-server.ts'
import { admin, chat, type Item, toolCall } from './request.ts'

/** Tells by its name whether an answer is costly for the manner in which it comes. */
const ofPieces = (name: string): boolean => /drip|endless|lines|comments|fields|events/.test(name)

/** Answers of hostile providers and MCP servers, and their definitions, read again as an operator asks. */
export const answerItems: readonly Item[] = [
  ...HOSTILE_MODELS.map(
    (model): Item => ({
      id: ofPieces(model) ? 'A3' : 'row 23',
      name: `an answer of ${model}`,
      request: () => chat(`{"model":"${model}","messages":[]}`),
    }),
  ),
  ...HOSTILE_SERVERS.flatMap((server): readonly Item[] => [
    {
      id: ofPieces(server) ? 'A3' : 'A6',
      name: `an answer of ${server}`,
      request: () => toolCall(`${server}.tool`),
    },
    {
      id: 'A6',
      name: `the definitions of ${server}`,
      request: (secret) => admin('POST', `/v1/admin/mcp-resources/{${server}}/refresh`, secret),
    },
  ]),
]
