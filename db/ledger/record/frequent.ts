/** The actions of nearly all rows. The index by action leaves them out: they are found by time. */
export const FREQUENT_ACTIONS: readonly string[] = ['egress_llm_chat', 'mcp_tools_call', 'mcp_tools_list']
