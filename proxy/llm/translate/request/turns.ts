import type {
  ContentPart,
  ReasoningPart,
  RequestTurn,
  TextPart,
  ToolCallPart,
  ToolResult,
} from '../model/request.ts'

interface UserTurn {
  readonly role: 'user'
  readonly results: ToolResult[]
  readonly parts: ContentPart[]
}

interface AssistantTurn {
  readonly role: 'assistant'
  readonly parts: (TextPart | ToolCallPart | ReasoningPart)[]
}

/** Joins what stands behind each other on one side into one turn each. */
export class TurnBuilder {
  readonly system: TextPart[] = []
  readonly turns: RequestTurn[] = []
  #user: UserTurn | null = null
  #assistant: AssistantTurn | null = null

  /** Adds text of the system: before all turns it is the request's own; later, it stays in its place. */
  addSystem(parts: readonly TextPart[]): void {
    if (this.turns.length === 0) this.system.push(...parts)
    else {
      this.#user = null
      this.#assistant = null
      this.turns.push({ role: 'system', parts })
    }
  }

  addUser(parts: readonly ContentPart[]): void {
    this.#asUser().parts.push(...parts)
  }

  addResult(result: ToolResult): void {
    this.#asUser().results.push(result)
  }

  addAssistant(...parts: readonly (TextPart | ToolCallPart | ReasoningPart)[]): void {
    if (!this.#assistant) {
      this.#assistant = { role: 'assistant', parts: [] }
      this.#user = null
      this.turns.push(this.#assistant)
    }
    this.#assistant.parts.push(...parts)
  }

  #asUser(): UserTurn {
    if (!this.#user) {
      this.#user = { role: 'user', results: [], parts: [] }
      this.#assistant = null
      this.turns.push(this.#user)
    }
    return this.#user
  }
}
