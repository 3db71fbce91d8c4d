//! What a connection and its requests may cost: each limit has a setting, and whoever passes it is told, or cut, and harms nobody.

mod any_input;
mod browsers;
mod seats;
mod slow;
mod unread;
