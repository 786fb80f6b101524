import { readFile } from 'node:fs/promises'
import { buffer } from 'node:stream/consumers'
import { isObject } from '../../db/support/json.ts'
import { type ApiWire, DIALECT_OF_WIRE, WIRES } from '../../proxy/llm/dialects/registry.ts'
import { llmOptions } from '../../proxy/llm/options.ts'
import { targetModel } from '../../proxy/llm/translate/call.ts'
import { translateRequest } from '../../proxy/llm/translate/plan.ts'
import { verbOf } from '../command.ts'
import { jsonLines, print, printNotice } from '../print.ts'

const APIS = WIRES.join(', ')

export const verb = verbOf({
  name: 'sallyport translate',
  takes: 'FILE',
  misuse: 'name one FILE with the body of a request, or - for standard input',
  about: `Prints what a provider of another API would be sent of a request, and says what is left out, told in another form, or
refused (docs/translation.md). It asks nobody and needs no gateway.`,
  options: {
    to: { type: 'string', value: 'API', needed: true, description: `what the provider speaks: ${APIS}` },
    from: { type: 'string', value: 'API', description: 'what the body is. Default: as its members say' },
    server: {
      type: 'string',
      value: 'NAME',
      description: 'which server it is, as in 50-llm.yaml. Default openai',
    },
    model: {
      type: 'string',
      value: 'NAME',
      description: "the provider's name of the model. Default: the body's",
    },
    lossy: { type: 'string', value: 'NAMES', description: 'the losses to accept: all, or names with commas' },
  },
  notes: 'Exit code: 0 if the provider can be told all of it but what --lossy accepts, else 1.',
  run: async ({ to, from, server, model, lossy = 'none' }, [file]) => {
    const body = file === '-' ? await buffer(process.stdin) : await readFile(file)
    const given: unknown = JSON.parse(body.toString())
    if (!isObject(given)) throw new Error(`${file} holds no JSON object`)
    const wire = apiOf('--to', to ?? '')
    const [provider] = llmOptions.parse({
      providers: [
        {
          name: 'offline',
          dialect: DIALECT_OF_WIRE[wire],
          base_url: 'http://localhost/v1',
          ...(server !== undefined && wire !== 'messages' && { server }),
          lossy: lossy === 'all' || lossy === 'none' ? lossy : lossy.split(','),
        },
      ],
    }).providers
    if (!provider) throw new Error('a list of one provider has none')
    const own = from === undefined ? apiOfBody(given) : apiOf('--from', from)
    if (own === wire) throw new Error(`the request is of ${wire} already: it is sent as it is`)
    const target = targetModel({ provider, model: model ?? String(given.model), alias: null, wire })
    const told = translateRequest({ from: own, body, sealKey: Buffer.alloc(32), target })
    if (told.faults) {
      for (const { field, loss } of told.faults) printNotice(`refused: ${field || 'the body'} (${loss})`)
      return 1
    }
    print(...jsonLines(JSON.parse(Buffer.from(told.body).toString())))
    if (told.dropped.length > 0) printNotice(`left out: ${told.dropped.join(', ')}`)
    if (told.carried.length > 0) printNotice(`told in another form: ${told.carried.join(', ')}`)
    return 0
  },
})

function apiOf(option: string, name: string): ApiWire {
  const wire = WIRES.find((one) => one === name)
  if (!wire) throw new Error(`${option} must be one of ${APIS}, got ${JSON.stringify(name)}`)
  return wire
}

/** Tells the API of a body by members that the others do not have. */
function apiOfBody(body: Readonly<Record<string, unknown>>): ApiWire {
  if (body.input !== undefined || body.instructions !== undefined) return 'responses'
  const isMessages =
    body.system !== undefined || body.thinking !== undefined || body.stop_sequences !== undefined
  const tools: readonly unknown[] = Array.isArray(body.tools) ? body.tools : []
  return isMessages || tools.some((tool) => isObject(tool) && 'input_schema' in tool) ? 'messages' : 'chat'
}
