"""The tools of each public set that change state."""

from __future__ import annotations

WORKBENCH = frozenset(
    [
        "calendar.create_event",
        "calendar.delete_event",
        "calendar.update_event",
        "email.send_email",
        "email.delete_email",
        "email.forward_email",
        "email.reply_email",
        "analytics.create_plot",
        "project_management.create_task",
        "project_management.delete_task",
        "project_management.update_task",
        "customer_relationship_manager.update_customer",
        "customer_relationship_manager.add_customer",
        "customer_relationship_manager.delete_customer",
    ]
)
"""WorkBench's tools that change state, as its own list of tools says."""
TAU = frozenset(
    [
        "book_reservation",
        "cancel_reservation",
        "update_reservation_flights",
        "update_reservation_baggages",
        "update_reservation_passengers",
        "send_certificate",
        "cancel_pending_order",
        "modify_pending_order_items",
        "modify_pending_order_address",
        "modify_pending_order_payment",
        "modify_user_address",
        "return_delivered_order_items",
        "exchange_delivered_order_items",
    ]
)
AGENTDOJO = frozenset(
    [
        "send_money",
        "schedule_transaction",
        "update_scheduled_transaction",
        "update_password",
        "update_user_info",
        "send_email",
        "delete_email",
        "create_calendar_event",
        "cancel_calendar_event",
        "reschedule_calendar_event",
        "add_calendar_event_participants",
        "append_to_file",
        "create_file",
        "delete_file",
        "share_file",
        "reserve_hotel",
        "reserve_restaurant",
        "reserve_car_rental",
        "add_user_to_channel",
        "send_channel_message",
        "send_direct_message",
        "invite_user_to_slack",
        "remove_user_from_slack",
        "post_webpage",
        "input_to_webpage",
    ]
)
STEPSHIELD = frozenset({"edit_file", "create_file", "run_command", "submit"})
ALFWORLD = frozenset({"python"})
