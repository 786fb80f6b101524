import type { Arrival } from '../../../plugins/plugin.ts'
import type { Reply } from '../../http/reply.ts'
import { MAX_PEOPLE_BODY } from './bridge.ts'
import type { PeopleService } from './service.ts'

/** Asks for all that the person holds, where a program asks for nothing in particular. */
function withScope(text: string): string {
  const asked = new URLSearchParams(text)
  if (asked.has('scope') || asked.has('request_uri')) return text
  asked.set('scope', 'mcp')
  return asked.toString()
}

/** GET and POST /oauth/authorize (RFC 6749 §3.1): the same, however it is asked. */
export const authorize =
  (service: PeopleService) =>
  async (arrival: Arrival): Promise<Reply> => {
    const isForm = arrival.method === 'POST'
    const text = isForm ? (await arrival.readBody(MAX_PEOPLE_BODY, {})).toString() : arrival.query
    const target = `${arrival.path}?${withScope(text)}`
    return service.answer({ ...arrival, method: 'GET' }, { target })
  }

/** POST /oauth/par (RFC 9126). */
export const pushAuthorization =
  (service: PeopleService) =>
  async (arrival: Arrival): Promise<Reply> => {
    const text = (await arrival.readBody(MAX_PEOPLE_BODY, {})).toString()
    return service.answer(arrival, { body: Buffer.from(withScope(text)) })
  }
